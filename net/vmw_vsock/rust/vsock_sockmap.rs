// SPDX-License-Identifier: GPL-2.0

//! Sockmap support for vsock: the `struct proto` of a vsock socket in a sockmap.
//!
//! This object is a part of `vsock` and takes the place of the C version,
//! [`net/vmw_vsock/vsock_bpf.c`](srctree/net/vmw_vsock/vsock_bpf.c). What the verdict passes stays
//! in the receive queue of the transport, so that a receive is the same in a sockmap and outside:
//! it waits without the socket lock, keeps records, and ends as the connection does.

use kernel::{
    bindings,
    error::from_result,
    net::{
        psock::{
            has_verdict,
            SockmapOps,
            SockmapProto, //
        },
        skbuff::SkBuffSlice,
        sock::Sock,
        socket::{
            MsgHdr,
            Socket, //
        },
    },
    prelude::*,
    sync::global_lock, //
};

mod vsock;

global_lock! {
    // SAFETY: `vsock_bpf_build_proto()` initialises it when the module is loaded, before a
    // transport can register, and without a transport `may_enter` fails before the lock is used.
    unsafe(uninit) static VSOCK_PROT_LOCK: SpinLockIrq<()> = ();
}

/// What a vsock socket in a sockmap has in place of `vsock_proto`.
static VSOCK_BPF_PROT: SockmapProto<Vsock, VSOCK_PROT_LOCK> = SockmapProto::new(&VSOCK_PROT_LOCK);

/// The sockets of `AF_VSOCK`.
enum Vsock {}

impl SockmapOps for Vsock {
    /// Refuses sockets without a transport ([`ENODEV`]), and those whose transport cannot give its
    /// packets to a verdict ([`EOPNOTSUPP`]).
    unsafe fn may_enter(sk: &Sock) -> Result {
        // SAFETY: Who inserts holds the socket lock, or its spinlock with the socket connected; in
        // the other calls the socket is one that was inserted.
        unsafe { vsock::check_read_skb(sk) }?;
        vsock::keep_transport(sk)
    }

    fn recvmsg(socket: &Socket, msg: Pin<&mut MsgHdr>, len: usize, flags: c_int) -> Result<usize> {
        vsock::native_recvmsg(socket, msg, len, flags)
    }

    unsafe fn send_skb(sk: &Sock, data: SkBuffSlice<'_>, all: bool) -> Result<u32> {
        // SAFETY: The socket is in a sockmap, and the caller no hard interrupt.
        unsafe { vsock::send_skb(sk, data, all) }
    }
}

/// Makes the replacement of `vsock_proto`.
///
/// # Safety
///
/// To be called once, when the module is loaded, before a transport can register.
#[export]
pub unsafe extern "C" fn vsock_bpf_build_proto() {
    // SAFETY: This is the only place that initialises it, and the caller calls it once.
    unsafe { VSOCK_PROT_LOCK.init() };
    // SAFETY: `vsock_proto` is a static of this module, and the lock has been initialised.
    unsafe { VSOCK_BPF_PROT.build(&raw mut bindings::vsock_proto) };
}

/// Replaces the proto of a vsock socket that enters a sockmap, or restores it.
///
/// Returns 0, or what [`SockmapOps::may_enter`] says as a negative errno.
///
/// # Safety
///
/// As for [`SockmapProto::update`], with a vsock socket.
#[export]
pub unsafe extern "C" fn vsock_bpf_update_proto(
    sk: *mut bindings::sock,
    psock: *mut bindings::sk_psock,
    restore: bool,
) -> c_int {
    from_result(|| {
        // SAFETY: By the safety requirements; the lock was initialised when the module was loaded.
        unsafe { VSOCK_BPF_PROT.update(sk, psock, restore) }?;
        Ok(0)
    })
}

/// Returns whether a program judges what a vsock socket receives: at once, however much its owner
/// waits for.
///
/// Does not sleep.
///
/// # Safety
///
/// `sk` must be a live socket.
#[export]
pub unsafe extern "C" fn vsock_bpf_has_verdict(sk: *mut bindings::sock) -> bool {
    // SAFETY: By the safety requirements.
    has_verdict(unsafe { Sock::from_raw(sk) })
}
