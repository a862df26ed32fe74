// SPDX-License-Identifier: GPL-2.0-only
//! Makes initramfs archives with the kernel's own gen_init_cpio.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use tempfile::TempPath;
use walkdir::WalkDir;

use crate::host::env::Env;
use crate::host::proc;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::Image;

/// The start of the line in which /init reports how its program ended. The exit status follows.
pub const EXIT_MARKER: &str = "xtask-guest-exit:";

/// The script /init. It mounts file systems, runs /main with the arguments from the kernel's
/// command line, checks for leaks and for lockdep, reports the exit status and powers off.
const INIT: &str = r#"#!/bin/busybox sh
/bin/busybox --install -s /bin 2>/dev/null
export PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin HOME=/root TERM=${TERM:-linux}
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /proc /sys /tmp /run /dev/pts /dev/shm /root /var/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts 2>/dev/null
for i in cgroup2:/sys/fs/cgroup bpf:/sys/fs/bpf debugfs:/sys/kernel/debug tracefs:/sys/kernel/tracing; do
    [ ! -d ${i#*:} ] || mount -t ${i%:*} ${i%:*} ${i#*:} 2>/dev/null
done
ln -sf /proc/self/fd /dev/fd
ip link set lo up
hostname guest
cd /root
/main "$@"
status=$?
if [ -w /sys/kernel/debug/kmemleak ] && [ -e /leak-check ]; then
    # On User-Mode Linux kmemleak does not see all pointers in the kernel's own data. So four kinds
    # of reports are not leaks: memory that swapper allocated; what TCP stores about its peers in
    # softirq; the table of four buckets that a worker makes when a hash table shrinks; and the array
    # of pages that the per-CPU allocator makes once and keeps (pcpu_get_pages(): 32 entries, those
    # in use with addresses of neighbouring struct page, which has 56 bytes). None of them belongs
    # to vsock.
    leaks() {
        echo scan > /sys/kernel/debug/kmemleak
        awk 'function byte(text) {
                 text = tolower(text)
                 return 16 * index(digits, substr(text, 1, 1)) + index(digits, substr(text, 2, 1))
             }
             # Whether a line of the hex dump has two addresses that are 56 bytes apart.
             function neighbours(line) {
                 split(line, word, " ")
                 return (byte(word[9]) - byte(word[1]) + 256) % 256 == 56 && word[5] word[13] == "0101"
             }
             function tell() {
                 split(object, line, "\n")
                 table = object ~ /size 96/ && object ~ /comm "kworker/ &&
                     object ~ /\n *04 00 00 00 00 00 00 00 /
                 pages = object ~ /size 256/ && (neighbours(line[4]) || neighbours(line[5]))
                 if (!table && !pages && object !~ /comm "(swapper|softirq)/) printf "%s", object
                 object = ""
             }
             BEGIN { digits = "123456789abcdef" }
             /^unreferenced/ { tell() }
             { object = object $0 "\n" }
             END { tell() }' /sys/kernel/debug/kmemleak
    }
    # kmemleak reports an object when it is some seconds old and two scans found no pointer to it.
    sleep 5; leaks > /dev/null
    sleep 1; leaks > /tmp/leaks
    # Objects that are about to be freed, such as a socket whose peer does not answer, get more
    # time.
    for i in 1 2 3; do
        [ -s /tmp/leaks ] || break
        sleep 5; leaks > /tmp/leaks
    done
    cat /tmp/leaks
fi
if grep -q 'debug_locks: *0' /proc/lockdep_stats 2>/dev/null; then
    echo "xtask: lockdep switched itself off"
fi
echo
echo "@MARKER@ $status"
if grep -q 'User Mode' /proc/cpuinfo; then poweroff -f; else reboot -f; fi
"#;

/// An entry of an archive.
enum Entry {
    Dir,
    /// The path of a file in the tool root, where gen_init_cpio reads it, and its mode.
    File(PathBuf, u32),
    /// The text of a file, and its mode.
    Text(String, u32),
    /// The target of a symbolic link.
    Link(String),
    Device {
        mode: u32,
        major: u32,
        minor: u32,
    },
}

/// An archive to be made. Its entries are ordered by their path in the guest.
pub struct Initramfs<'a> {
    env: &'a Env,
    root: &'a ToolRoot,
    entries: BTreeMap<String, Entry>,
}

impl<'a> Initramfs<'a> {
    /// Begins an archive with busybox, /init, and /main, the script that /init runs. `main` is the
    /// text of that script and begins with `#!`.
    pub fn new(env: &'a Env, root: &'a ToolRoot, main: &str) -> Self {
        let mut new = Initramfs {
            env,
            root,
            entries: BTreeMap::new(),
        };
        // The kernel opens /dev/console before it runs /init.
        new.device("/dev/console", 0o600, 5, 1);
        new.device("/dev/null", 0o666, 1, 3);
        for dir in [
            "/proc", "/sys", "/tmp", "/run", "/root", "/etc", "/var", "/mnt",
        ] {
            new.dir(dir);
        }
        new.text("/etc/passwd", "root::0:0:root:/root:/bin/sh\n", 0o644);
        new.text("/etc/group", "root:x:0:\n", 0o644);
        new.text("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", 0o644);
        new.file("/bin/busybox", Path::new("/usr/bin/busybox"), 0o755);
        new.link("/bin/sh", "busybox");
        new.text("/init", &INIT.replace("@MARKER@", EXIT_MARKER), 0o755);
        new.text("/main", main, 0o755);
        new
    }

    /// Makes /init scan for leaks at its end, if the kernel has kmemleak. The scan takes 7 s.
    pub fn leak_check(&mut self) -> &mut Self {
        self.text("/leak-check", "", 0o644)
    }

    /// Adds a folder.
    pub fn dir(&mut self, guest: &str) -> &mut Self {
        self.entries.insert(guest.to_string(), Entry::Dir);
        self
    }

    /// Adds a file. `source` is a path in the tool root, in the cache, or in the checkout.
    pub fn file(&mut self, guest: &str, source: &Path, mode: u32) -> &mut Self {
        self.entries
            .insert(guest.to_string(), Entry::File(source.to_path_buf(), mode));
        self
    }

    /// Adds a file that contains `text`.
    pub fn text(&mut self, guest: &str, text: &str, mode: u32) -> &mut Self {
        self.entries
            .insert(guest.to_string(), Entry::Text(text.to_string(), mode));
        self
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, guest: &str, target: &str) -> &mut Self {
        self.entries
            .insert(guest.to_string(), Entry::Link(target.to_string()));
        self
    }

    /// Adds a character device.
    fn device(&mut self, guest: &str, mode: u32, major: u32, minor: u32) {
        self.entries
            .insert(guest.to_string(), Entry::Device { mode, major, minor });
    }

    /// Adds a program and the libraries that it is linked with. `source` is as for [`Self::file`].
    pub fn program(&mut self, guest: &str, source: &Path) -> Result<&mut Self> {
        self.file(guest, source, 0o755);
        let mut readelf = self.root.command(Path::new("/"), "sh");
        // ldd fails for a static program, which needs no libraries.
        readelf
            .args([
                "-c",
                r#"test -r "$1" || exit 1; ldd "$1" 2>/dev/null || :"#,
                "sh",
            ])
            .arg(source);
        let libraries = proc::output(readelf).with_context(|| {
            format!(
                "cannot read {} to put it into an initramfs",
                source.display()
            )
        })?;
        for library in parse_ldd(&libraries)? {
            self.file(&library, Path::new(&library), 0o755);
        }
        Ok(self)
    }

    /// Adds all modules of a kernel, so that `modprobe` works.
    pub fn modules(&mut self, image: &Image) -> Result<&mut Self> {
        let Some(modules) = &image.modules else {
            return Ok(self);
        };
        let version = modules
            .file_name()
            .context("the folder of modules has no name")?
            .to_string_lossy();
        for entry in WalkDir::new(modules) {
            let entry = entry?;
            // This leaves out `build`, a link to the build folder.
            if entry.file_type().is_file() {
                let inside = entry.path().strip_prefix(modules)?.display();
                let guest = format!("/lib/modules/{version}/{inside}");
                self.file(&guest, entry.path(), 0o644);
            }
        }
        Ok(self)
    }

    /// Writes the archive. Dropping the returned path removes the file.
    pub fn build(&self, image: &Image) -> Result<TempPath> {
        let work = tempfile::tempdir_in(&self.env.logs)?;
        let list = work.path().join("list");
        fs::write(&list, self.list(work.path())?)?;
        let archive = tempfile::Builder::new()
            .suffix(".cpio")
            .tempfile_in(&self.env.logs)?;
        let archive = archive.into_temp_path();
        let generator = image.dir.join("gen_init_cpio");
        let mut generate = self
            .root
            .command(work.path(), &generator.display().to_string());
        generate.arg("-o").arg(&archive).arg(&list);
        proc::output(generate).context("cannot make an initramfs")?;
        Ok(archive)
    }

    /// Returns the list that gen_init_cpio reads. Writes the texts of entries to files in folder
    /// `texts`.
    fn list(&self, texts: &Path) -> Result<String> {
        let mut dirs = BTreeSet::new();
        for (guest, entry) in &self.entries {
            if matches!(entry, Entry::Dir) {
                dirs.insert(guest.clone());
            }
            let mut dir = Path::new(guest).parent();
            while let Some(parent) = dir.filter(|parent| *parent != Path::new("/")) {
                dirs.insert(parent.display().to_string());
                dir = parent.parent();
            }
        }
        // The set is sorted, so a folder comes before its entries.
        let mut list: String = dirs
            .iter()
            .map(|dir| format!("dir {dir} 0755 0 0\n"))
            .collect();
        for (number, (guest, entry)) in self.entries.iter().enumerate() {
            if guest.contains(char::is_whitespace) {
                bail!("initramfs: rename {guest:?}: a path with a space cannot be added");
            }
            match entry {
                Entry::Dir => {}
                Entry::File(source, mode) => {
                    list += &format!("file {guest} {} {mode:o} 0 0\n", source.display());
                }
                Entry::Text(text, mode) => {
                    let source = texts.join(number.to_string());
                    fs::write(&source, text)?;
                    list += &format!("file {guest} {} {mode:o} 0 0\n", source.display());
                }
                Entry::Link(target) => list += &format!("slink {guest} {target} 0777 0 0\n"),
                Entry::Device { mode, major, minor } => {
                    list += &format!("nod {guest} {mode:o} 0 0 c {major} {minor}\n");
                }
            }
        }
        Ok(list)
    }
}

/// Returns the library files in the output of ldd.
fn parse_ldd(output: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    for line in output.lines().map(str::trim) {
        if line.contains("not found") {
            bail!("add the package of this library to PACKAGES in host/toolroot.rs: {line}");
        }
        let file = line.split_whitespace().find(|word| word.starts_with('/'));
        files.extend(file.map(String::from));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_of_ldd() {
        let output = "\tlinux-vdso.so.1 (0x00007fff)\n\
                      \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
                      \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        assert_eq!(
            parse_ldd(output).unwrap(),
            [
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
        );
        assert!(parse_ldd("\tlibx.so => not found\n").is_err());
        assert!(parse_ldd("\tstatically linked\n").unwrap().is_empty());
    }
}
