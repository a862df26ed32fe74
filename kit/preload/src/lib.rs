// SPDX-License-Identifier: GPL-2.0-only
//! A library for `LD_PRELOAD` that runs any vsock program with its sockets in a sockmap.
//!
//! A sockmap is transparent if a program in it works exactly as outside. This library tests that
//! with programs that know nothing of sockmaps, such as Linux's `vsock_test`: it wraps connect(2),
//! accept(2) and accept4(2), and puts each connected vsock into a map before the program gets it.
//! If a socket cannot enter the map, the library aborts the program, so that no test passes
//! outside. The only exception is a socket whose peer has already closed the connection.
//!
//! Example, on the server and likewise on the client:
//!
//! ```text
//! LD_PRELOAD=./libpreload.so PRELOAD_MODE=pass \
//!     vsock_test --mode=server --control-port=1234 --peer-cid=1
//! ```
//!
//! The variable `PRELOAD_MODE` chooses what the library does:
//!
//! - `pass`: the map has a verdict program, which passes each packet to its own socket.
//! - `faults`: there is no map. After the first accept, allocations of the accepting thread, and of
//!   threads that it makes later, fail at the rate set in `/sys/kernel/debug/failslab`. They do not
//!   fail earlier, because then the program could not load its BPF programs.
//! - any other value, or none: the map has no program.

use std::ffi::{c_int, OsString};
use std::io::{Error, Result};
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::sync::{Once, OnceLock};

use libc::{sockaddr, socklen_t};
use sockmap::{Map, Program};

/// Size of the map: more sockets than a program has open at the same time.
const MAX_SOCKETS: u32 = 4096;

fn die(what: &str, error: &Error) -> ! {
    eprintln!("preload: {what}: {error}");
    std::process::abort()
}

fn mode() -> Option<OsString> {
    std::env::var_os("PRELOAD_MODE")
}

fn new_map() -> Result<Map> {
    let map = Map::new(MAX_SOCKETS)?;
    if mode().is_some_and(|mode| mode == "pass") {
        map.attach(&Program::pass()?)?;
    }
    Ok(map)
}

/// Returns the map of this process.
fn map() -> &'static Map {
    static MAP: OnceLock<Map> = OnceLock::new();
    MAP.get_or_init(|| new_map().unwrap_or_else(|error| die("cannot make a sockmap", &error)))
}

/// Returns the value of an integer socket option of level `SOL_SOCKET`.
fn option<T: Copy>(fd: c_int, name: c_int) -> Option<T> {
    // SAFETY: All callers ask for integers, for which zero is valid.
    let mut value: T = unsafe { zeroed() };
    let mut len = size_of::<T>() as socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: `to` points to `len` writable bytes.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, to, &mut len) };
    (result == 0).then_some(value)
}

/// Puts a socket into the map, if it is a stream or seqpacket socket of vsock.
fn enter(fd: c_int) {
    let connectible = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    if option(fd, libc::SO_DOMAIN) != Some(libc::AF_VSOCK)
        || !option(fd, libc::SO_TYPE).is_some_and(|kind: c_int| connectible.contains(&kind))
    {
        return;
    }
    let Some(cookie) = option(fd, libc::SO_COOKIE) else {
        die("cannot read SO_COOKIE of a socket", &Error::last_os_error());
    };
    // SAFETY: The wrapped call has just succeeded on this descriptor, so it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    match map().insert(cookie, socket) {
        Ok(()) => {}
        // The peer has closed the connection already, and the kernel takes only connected sockets.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(error) => die("cannot put a socket into the map", &error),
    }
}

/// Makes allocations of this thread, and of threads that it makes later, fail.
fn request_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(error) = std::fs::write("/proc/thread-self/make-it-fail", "1") {
            die(
                "cannot write /proc/thread-self/make-it-fail (CONFIG_FAULT_INJECTION, root)",
                &error,
            );
        }
    });
}

/// Puts the socket `fd` into the map after a call that returned `result`, unless the mode is
/// `faults`. Returns `result`, and keeps `errno` as the call left it.
fn entered(fd: c_int, result: c_int) -> c_int {
    if result >= 0 && mode().is_none_or(|mode| mode != "faults") {
        let errno = Error::last_os_error().raw_os_error().unwrap_or(0);
        enter(fd);
        // SAFETY: The pointer is to the `errno` of this thread.
        unsafe { *libc::__errno_location() = errno };
    }
    result
}

/// Wraps connect(2).
///
/// # Safety
///
/// The pointers must be as connect(2) needs them.
#[no_mangle]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: The caller promises what the system call needs.
    let result = unsafe { libc::syscall(libc::SYS_connect, fd, address, len) };
    entered(fd, result as c_int)
}

/// Wraps accept(2).
///
/// # Safety
///
/// The pointers must be as accept(2) needs them.
#[no_mangle]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: The caller promises what accept4(2) needs.
    unsafe { accept4(fd, address, len, 0) }
}

/// Wraps accept4(2).
///
/// # Safety
///
/// The pointers must be as accept4(2) needs them.
#[no_mangle]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: The caller promises what the system call needs.
    let result = unsafe { libc::syscall(libc::SYS_accept4, fd, address, len, flags) };
    if result >= 0 && mode().is_some_and(|mode| mode == "faults") {
        request_faults();
    }
    entered(result as c_int, result as c_int)
}
