// SPDX-License-Identifier: GPL-2.0-only
//! One direction inside the kernel: the BPF programs, their maps, and what user space steers.
//!
//! A sockmap has no notion of an end of file, and nothing tells when the queue of a redirect is
//! empty. The lane therefore owns a UNIX datagram pair whose one end is in a map of its own
//! (`injector`): what is written to the other end goes, through the same queue as everything else,
//! to the target. An empty datagram sent that way is an end marker. It is still charged to the
//! lane's own socket (`SIOCOUTQ`) until the kernel has come to it, and then all before it has been
//! handed to the target. Kernels whose redirect stops at an empty packet set EPIPE on the target at
//! that very point instead, which says the same.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyhow::{bail, Context, Result};
use aya::maps::{Map, MapData, SockMap};
use aya::programs::SkSkb;
use aya::{include_bytes_aligned, Ebpf, EbpfLoader};
use nix::errno::Errno;
use nix::sys::mman::{mmap, munmap, MapFlags, ProtFlags};
use nix::sys::socket::{setsockopt, socketpair, sockopt, AddressFamily, SockFlag, SockType};
use rustix::event::PollFlags;

use crate::sys::{self, Stop};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

const BPF_NOEXIST: u64 = 1;

/// Value of `taken` that `passed` never reaches: nothing is redirected.
const HOLD: u64 = u64::MAX;

/// `struct shared` of redirect.bpf.c.
#[repr(C)]
struct SharedLayout {
    bytes: AtomicU64,
    packets: AtomicU64,
    passed: AtomicU64,
    taken: AtomicU64,
}

/// The one element of the map `shared`, mapped.
pub struct Shared(NonNull<SharedLayout>);

// SAFETY: the mapping belongs to the process, not to a thread, and all its fields are atomic.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(map: BorrowedFd<'_>) -> io::Result<Self> {
        let length = size_of::<SharedLayout>().try_into().expect("not zero");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let address = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, map, 0) }?;
        Ok(Shared(address.cast()))
    }

    fn layout(&self) -> &SharedLayout {
        // SAFETY: the map's value has this layout and is page aligned, the mapping lives as long
        // as `self`, and every bit pattern is valid.
        unsafe { self.0.as_ref() }
    }

    /// Bytes that the kernel sent on by itself.
    pub fn bytes(&self) -> u64 {
        self.layout().bytes.load(Ordering::Acquire)
    }

    pub fn packets(&self) -> u64 {
        self.layout().packets.load(Ordering::Acquire)
    }

    /// Bytes that the program left to user space to receive.
    pub fn passed(&self) -> u64 {
        self.layout().passed.load(Ordering::Acquire)
    }

    fn taken(&self) -> u64 {
        self.layout().taken.load(Ordering::Acquire)
    }

    fn set_taken(&self, bytes: u64) {
        self.layout().taken.store(bytes, Ordering::Release);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new` and nothing borrows from it any more.
        let _ = unsafe { munmap(self.0.cast(), size_of::<SharedLayout>()) };
    }
}

/// How far an end marker has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Marker {
    Underway,
    Passed,
    Failed(Errno),
}

pub struct Lane {
    source: SockMap<MapData>,
    target: SockMap<MapData>,
    shared: Arc<Shared>,
    inject: OwnedFd,
    // Both keep the kernel's side alive: the programs with their links, and the injector's end.
    _ebpf: Ebpf,
    _injector: (SockMap<MapData>, OwnedFd),
}

impl Lane {
    /// Loads the programs and attaches them to maps that are still empty.
    pub fn new() -> Result<Self> {
        // Made once: a new loader reads all type information of the kernel, of which none is used.
        static LOADER: OnceLock<Mutex<EbpfLoader<'static>>> = OnceLock::new();
        let loader = LOADER.get_or_init(|| {
            let mut loader = EbpfLoader::new();
            loader.btf(None);
            Mutex::new(loader)
        });
        let mut ebpf = loader
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .load(OBJECT)
            .map_err(explain)?;

        let Some(Map::Array(data)) = ebpf.take_map("shared") else {
            bail!("the BPF object has no map 'shared'");
        };
        let shared = Shared::new(data.fd().as_fd()).context("mmap of a BPF map")?;
        let mut sockmap = |name| -> Result<SockMap<MapData>> {
            let map = ebpf.take_map(name).context("missing in the BPF object")?;
            Ok(SockMap::try_from(map)?)
        };
        let (source, target) = (sockmap("source")?, sockmap("target")?);
        let mut injector = sockmap("injector")?;

        for (name, map) in [("forward", &source), ("inject", &injector)] {
            let program: &mut SkSkb = ebpf
                .program_mut(name)
                .context("missing in the BPF object")?
                .try_into()?;
            program.load().map_err(explain)?;
            program.attach(map.fd()).map_err(explain)?;
        }

        // The code of a program names its maps by descriptor until it is loaded.
        drop(data);

        let (inject, end) = socketpair(
            AddressFamily::Unix,
            SockType::Datagram,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        injector.set(0, &end, 0).map_err(explain)?;
        // Room for all that a client may have queued. Refused without CAP_NET_ADMIN, and then an
        // injection may have to wait.
        let _ = setsockopt(&inject, sockopt::SndBufForce, &(4 << 20));

        Ok(Lane {
            source,
            target,
            shared: Arc::new(shared),
            inject,
            _ebpf: ebpf,
            _injector: (injector, end),
        })
    }

    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The target goes in before the source: a packet that finds no target is not redirected.
    pub fn set_target(&mut self, socket: &OwnedFd) -> Result<()> {
        ignore_present(self.target.set(0, socket, BPF_NOEXIST)).map_err(explain)
    }

    pub fn set_source(&mut self, socket: &OwnedFd) -> Result<()> {
        ignore_present(self.source.set(0, socket, BPF_NOEXIST)).map_err(explain)
    }

    /// From the next packet on, the program leaves everything to the owner of the source.
    pub fn hold(&self) {
        self.shared.set_taken(HOLD);
        sys::barrier();
    }

    /// Redirects again, provided that not more than `passed` was left to user space by now.
    /// Returns whether it does.
    pub fn release(&self, passed: u64) -> bool {
        self.shared.set_taken(passed);
        sys::barrier();
        self.is_redirecting()
    }

    pub fn is_redirecting(&self) -> bool {
        self.shared.passed() == self.shared.taken()
    }

    /// Sends bytes to the target behind all that was redirected before. False: no room now.
    /// No bytes: the end marker, before which the target's pending error must have been taken.
    pub fn inject(&self, bytes: &[u8]) -> nix::Result<bool> {
        Ok(sys::send(self.inject.as_fd(), bytes)?.is_some())
    }

    /// Waits a while for room to inject.
    pub fn wait_room(&self, stop: &Stop) {
        let limit = Some(Duration::from_millis(20));
        let stop = (stop.flag.fd(), PollFlags::empty());
        sys::poll([(self.inject.as_fd(), PollFlags::OUT), stop], limit);
    }

    /// Where the marker is, given the target's pending error, and whether a send to the target
    /// would still be accepted.
    pub fn marker(&self, error: Option<Errno>, target_writes: impl FnOnce() -> bool) -> Marker {
        match error {
            Some(Errno::EPIPE) if target_writes() => Marker::Passed,
            Some(error) => Marker::Failed(error),
            None => match sys::unsent(self.inject.as_fd()) {
                Ok(0) => Marker::Passed,
                Ok(_) => Marker::Underway,
                Err(error) => Marker::Failed(error),
            },
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // Explicitly, because the kernel frees a map, and with it the entries, only later.
        let _ = self.source.clear_index(&0);
        let _ = self.target.clear_index(&0);
    }
}

/// A socket that is in the map already is what was asked for. The kernel says EBUSY for a source
/// (it has a program) and EEXIST for a target.
fn ignore_present(result: Result<(), aya::maps::MapError>) -> Result<(), aya::maps::MapError> {
    match result {
        Err(error) if matches!(errno(&error), Some(libc::EBUSY | libc::EEXIST)) => Ok(()),
        other => other,
    }
}

/// The system's error number in a chain of errors.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.raw_os_error();
        }
        cause = error.source();
    }
    None
}

/// The kernel has no vsock sockmap: no later connection can fare better.
#[derive(Debug)]
pub struct Unsupported;

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "this kernel cannot put the socket into a sockmap (vsock needs Linux 6.4 or later, and \
             the transport virtio, vhost or loopback)",
        )
    }
}

impl std::error::Error for Unsupported {}

/// One line for what the kernel refused.
fn explain<E: std::error::Error + Send + Sync + 'static>(error: E) -> anyhow::Error {
    match errno(&error) {
        Some(libc::EPERM | libc::EACCES) => anyhow::anyhow!(
            "no permission for bpf(2): run as root, or with CAP_BPF and CAP_NET_ADMIN"
        ),
        Some(libc::ENOSYS) => anyhow::anyhow!("this kernel has no bpf(2) (CONFIG_BPF_SYSCALL)"),
        Some(libc::EOPNOTSUPP) => Unsupported.into(),
        Some(libc::EINVAL) => anyhow::anyhow!(
            "this kernel's BPF has no sockmap with a verdict program (CONFIG_BPF_STREAM_PARSER)"
        ),
        _ => {
            let cause = error.source().map(|cause| format!(": {cause}"));
            let line = format!("BPF: {error}{}", cause.unwrap_or_default());
            anyhow::anyhow!("{}", line.replace('\n', " "))
        }
    }
}
