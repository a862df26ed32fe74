// SPDX-License-Identifier: GPL-2.0-only
//! Guests that measure, and their host.

use std::path::Path;

use anyhow::{anyhow, Result};
use tempfile::TempPath;

use super::work::Work;
use crate::guest::boot::{Boot, System};
use crate::guest::initramfs::Initramfs;
use crate::guest::pair::{said, Pair};
use crate::guest::programs::Programs;
use crate::host::env::Env;
use crate::host::progress::Step;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::Image;
use crate::measure::figures::measured::{Line, Measured};

const VMADDR_CID_HOST: u32 = 2;

const GUEST_MAIN: &str = "#!/bin/sh\n\
    for i in vsock vsock_loopback vmw_vsock_virtio_transport vsockmon; do modprobe -q $i; done\n\
    ip link add vsockmon type vsockmon\n\
    exec guest bench --monitor vsockmon \"$@\"\n";

/// A kernel, and what it boots with.
pub struct Guest<'a> {
    env: &'a Env,
    root: &'a ToolRoot,
    pub image: Image,
    archive: TempPath,
    host: Option<&'a Host>,
}

/// The host of a guest, which has the far ends of the vsocks.
pub struct Host {
    image: Image,
    script: String,
}

const PORT: u32 = 1234;

impl Host {
    pub fn new(image: Image, programs: &Programs) -> Self {
        Host {
            image,
            script: format!("'{}' bench-peer {PORT} &", programs.guest.display()),
        }
    }
}

impl<'a> Guest<'a> {
    pub fn new(
        env: &'a Env,
        root: &'a ToolRoot,
        image: Image,
        programs: &Programs,
        host: Option<&'a Host>,
    ) -> Result<Self> {
        let mut initramfs = Initramfs::new(env, root, GUEST_MAIN);
        initramfs
            .modules(&image)?
            .file("/bin/guest", &programs.guest, 0o755)
            .program("/usr/bin/socat", Path::new("/usr/bin/socat"))?;
        let archive = initramfs.build(&image)?;
        Ok(Guest {
            env,
            root,
            image,
            archive,
            host,
        })
    }

    /// Boots the guest and returns what it measured, with an error if the boot did not go well. The
    /// outer error is for a boot that could not begin.
    pub fn measure(
        &self,
        work: &Work,
        name: &str,
        step: &mut Step,
    ) -> Result<(Vec<Measured>, Result<()>)> {
        let kernel = self.image.flavour.sockmap;
        let mut lines = Vec::new();
        let mut each_line = |line: &str| {
            if let Ok(line) = serde_json::from_str::<Line>(said(line)) {
                step.at(&format!("{}, {}", line.path, line.arm));
                lines.push(Measured { kernel, line });
            }
        };
        let verdict = match self.host {
            Some(host) => self.boot_in(host, work, name, &mut each_line)?,
            None => self.boot(work, name, &mut each_line)?,
        };
        Ok((lines, verdict))
    }

    /// Boots the guest alone.
    fn boot(&self, work: &Work, name: &str, each_line: &mut dyn FnMut(&str)) -> Result<Result<()>> {
        let guest_args = work.guest_args();
        let mut boot = Boot::new(&self.image, System::Initramfs(&self.archive));
        boot.args = &guest_args;
        boot.timeout = Some(work.limit);
        boot.each_line = Some(each_line);
        Ok(boot.run(self.env, self.root, name)?.verdict())
    }

    /// Boots the host, and the guest in it.
    fn boot_in(
        &self,
        host: &Host,
        work: &Work,
        name: &str,
        each_line: &mut dyn FnMut(&str),
    ) -> Result<Result<()>> {
        let mut guest_args = work.guest_args();
        guest_args.extend(["--peer".to_string(), format!("{VMADDR_CID_HOST}:{PORT}")]);
        let pair = Pair {
            env: self.env,
            root: self.root,
            host: &host.image,
            guest: &self.image,
            initramfs: &self.archive,
            args: &guest_args,
            script: &host.script,
            limit: work.limit,
        };
        let (_, problems) = pair.run(name, each_line)?;
        Ok(match problems.is_empty() {
            true => Ok(()),
            false => Err(anyhow!("{}", problems.join("\n"))),
        })
    }
}
