// SPDX-License-Identifier: GPL-2.0

//! Sockmap support for vsock: the `struct proto` of a vsock socket in a sockmap.
//!
//! This object is a part of `vsock`. It replaces the C version,
//! [`net/vmw_vsock/vsock_bpf.c`](srctree/net/vmw_vsock/vsock_bpf.c).
//!
//! A packet that the verdict passes stays in the receive queue of the transport. A receive from a
//! socket in a sockmap is therefore the same as from any other socket: it waits without the socket
//! lock, preserves the boundaries of records, and sees the end of the connection.

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
    // SAFETY: `vsock_bpf_build_proto()` initialises the lock when the module is loaded, before a
    // transport can register. Without a transport `may_enter` fails before the lock is used.
    unsafe(uninit) static VSOCK_PROT_LOCK: SpinLockIrq<()> = ();
}

/// The `struct proto` that replaces `vsock_proto` while a vsock socket is in a sockmap.
static VSOCK_BPF_PROT: SockmapProto<Vsock, VSOCK_PROT_LOCK> = SockmapProto::new(&VSOCK_PROT_LOCK);

/// The sockets of `AF_VSOCK`.
enum Vsock {}

impl SockmapOps for Vsock {
    /// Refuses a socket without a transport ([`ENODEV`]), and a socket whose transport cannot run
    /// a verdict on received packets ([`EOPNOTSUPP`]).
    unsafe fn may_enter(sk: &Sock) -> Result {
        // SAFETY: User space inserts a socket with the socket lock held. A BPF program inserts a
        // connected socket, with the spinlock of the socket lock held. In all other calls the
        // socket was inserted earlier, so that it keeps its transport.
        unsafe { vsock::check_read_skb(sk) }?;
        vsock::keep_transport(sk)
    }

    fn recvmsg(socket: &Socket, msg: Pin<&mut MsgHdr>, len: usize, flags: c_int) -> Result<usize> {
        vsock::native_recvmsg(socket, msg, len, flags)
    }

    unsafe fn send_skb(sk: &Sock, data: SkBuffSlice<'_>, all: bool) -> Result<u32> {
        // SAFETY: By the safety requirements the socket is or was in a sockmap.
        // `sk_psock::send_skb` is not called from a hard interrupt.
        unsafe { vsock::send_skb(sk, data, all) }
    }
}

/// Makes the `struct proto` that replaces `vsock_proto`.
///
/// # Context
///
/// Process context, when the module is loaded. Does not sleep. Takes and releases
/// `VSOCK_PROT_LOCK`.
///
/// # Safety
///
/// The caller must call this function once, when the module is loaded, before a transport can
/// register.
#[export]
pub unsafe extern "C" fn vsock_bpf_build_proto() {
    // SAFETY: No other function initialises the lock, and the caller calls this function once.
    unsafe { VSOCK_PROT_LOCK.init() };
    // SAFETY: `vsock_proto` is a static of this module, and the lock has been initialised.
    unsafe { VSOCK_BPF_PROT.build(&raw mut bindings::vsock_proto) };
}

/// Replaces the `struct proto` of a vsock socket that enters a sockmap, or restores it.
///
/// Returns 0, or the error of [`SockmapOps::may_enter`] as a negative errno.
///
/// # Context
///
/// Any context but hard interrupt. Does not sleep. The caller holds one of the locks that
/// [`SockmapProto::update`] names. May take and release `VSOCK_PROT_LOCK`.
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
        // SAFETY: By the safety requirements `sk` is a vsock socket, `psock` is its psock, and the
        // caller holds one of the locks that `update()` names. The lock of the proto was
        // initialised when the module was loaded.
        unsafe { VSOCK_BPF_PROT.update(sk, psock, restore) }?;
        Ok(0)
    })
}

/// Returns whether a program gives a verdict on the packets that a vsock socket receives.
///
/// Such a socket must call `sk_data_ready` for each packet, even if its owner waits for more bytes
/// (`SO_RCVLOWAT`).
///
/// # Context
///
/// Any context but hard interrupt. Does not sleep. Takes and releases the RCU read lock.
///
/// # Safety
///
/// `sk` must be a live socket.
#[export]
pub unsafe extern "C" fn vsock_bpf_has_verdict(sk: *mut bindings::sock) -> bool {
    // SAFETY: By the safety requirements `sk` is a live socket.
    has_verdict(unsafe { Sock::from_raw(sk) })
}
