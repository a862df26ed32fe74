// SPDX-License-Identifier: GPL-2.0-only
//! A library to preload: every vsock socket that a program connects or accepts is put into a sockmap
//! before the program sees it.
//!
//! With `PRELOAD_MODE=pass` the map has a program that passes all that arrives, else it has none. A
//! transparent sockmap changes nothing for the program. If a socket cannot be put into the map, the
//! program is aborted, so that it is not tested outside of it.
//!
//! With `PRELOAD_MODE=faults` there is no map. When it has accepted a connection, the thread and those that it
//! makes then ask the kernel for allocations that fail: earlier it would get no BPF program loaded.

use std::ffi::{c_int, OsString};
use std::io::{Error, Result};
use std::mem::zeroed;
use std::os::fd::BorrowedFd;
use std::sync::{Once, OnceLock};

use libc::{sockaddr, socklen_t};
use sockmap::{Map, Program};

/// More sockets than a program has at a time.
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

/// The map of this process.
fn map() -> &'static Map {
    static MAP: OnceLock<Map> = OnceLock::new();
    MAP.get_or_init(|| new_map().unwrap_or_else(|error| die("make a map", &error)))
}

/// The value of a socket option of level `SOL_SOCKET`.
fn option<T: Copy>(fd: c_int, name: c_int) -> Option<T> {
    // SAFETY: Only used for integers.
    let mut value: T = unsafe { zeroed() };
    let mut len = size_of::<T>() as socklen_t;
    let to = (&raw mut value).cast();
    // SAFETY: `value` is as long as `len` says.
    let result = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, to, &mut len) };
    (result == 0).then_some(value)
}

/// Puts a socket into the map if it is a connected one of vsock.
fn enter(fd: c_int) {
    let connectible = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];
    if option(fd, libc::SO_DOMAIN) != Some(libc::AF_VSOCK)
        || !option(fd, libc::SO_TYPE).is_some_and(|kind: c_int| connectible.contains(&kind))
    {
        return;
    }
    let Some(cookie) = option(fd, libc::SO_COOKIE) else {
        die("get the cookie of a socket", &Error::last_os_error());
    };
    // SAFETY: The caller has just got it from the kernel or connected it.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    match map().insert(cookie, socket) {
        Ok(()) => {}
        // The peer has closed the connection already.
        Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        Err(error) => die("put a socket into the map", &error),
    }
}

fn ask_for_faults() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Err(error) = std::fs::write("/proc/thread-self/make-it-fail", "1") {
            die("ask for faults", &error);
        }
    });
}

/// Keeps `errno` as the wrapped call left it.
fn entered(fd: c_int, result: c_int) -> c_int {
    if result >= 0 && mode().is_none_or(|mode| mode != "faults") {
        let errno = Error::last_os_error().raw_os_error().unwrap_or(0);
        enter(fd);
        // SAFETY: The location is that of this thread.
        unsafe { *libc::__errno_location() = errno };
    }
    result
}

/// # Safety
///
/// As for `connect(2)`.
#[no_mangle]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    // SAFETY: The caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_connect, fd, address, len) };
    entered(fd, result as c_int)
}

/// # Safety
///
/// As for `accept(2)`.
#[no_mangle]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    // SAFETY: The caller's promise.
    unsafe { accept4(fd, address, len, 0) }
}

/// # Safety
///
/// As for `accept4(2)`.
#[no_mangle]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: The caller's promise.
    let result = unsafe { libc::syscall(libc::SYS_accept4, fd, address, len, flags) };
    if result >= 0 && mode().is_some_and(|mode| mode == "faults") {
        ask_for_faults();
    }
    entered(result as c_int, result as c_int)
}
