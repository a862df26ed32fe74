// SPDX-License-Identifier: GPL-2.0

//! A vsock socket with a virtio transport.
//!
//! C headers: [`include/net/af_vsock.h`](srctree/include/net/af_vsock.h) and
//! [`include/linux/virtio_vsock.h`](srctree/include/linux/virtio_vsock.h)

use kernel::{
    bindings,
    net::sock::{
        Sock,
        SockType, //
    },
    prelude::*, //
};

use core::{
    mem::offset_of,
    ptr::NonNull, //
};

use super::verdict_queue::VerdictQueue;

const _: () = assert!(size_of::<bindings::vsock_sock>() == bindings::SIZEOF_VSOCK_SOCK);
const _: () =
    assert!(size_of::<bindings::virtio_vsock_sock>() == bindings::SIZEOF_VIRTIO_VSOCK_SOCK);
// The casts in `VirtioSock::from_sk` rely on these offsets.
const _: () = assert!(offset_of!(bindings::virtio_transport, transport) == 0);
const _: () = assert!(offset_of!(bindings::vsock_sock, sk) == 0);

/// A vsock socket that has a virtio transport and keeps it.
///
/// The transport stays valid without a lock, because the socket is or was in a sockmap. `connect()`
/// refuses such a socket (`keeps_transport`), so the socket keeps its transport until it is freed.
///
/// The fields are private to this file, so that only [`VirtioSock::from_sk`] can set them.
///
/// # Invariants
///
/// `vsk` is a live socket, and `sk` is its first field. `transport` is the transport of the socket,
/// which is a virtio transport, and `vvs` is its transport state. The fields `transport` and
/// `trans` of the socket do not change during `'a`.
#[derive(Clone, Copy)]
pub(crate) struct VirtioSock<'a> {
    sk: &'a Sock,
    vsk: NonNull<bindings::vsock_sock>,
    vvs: NonNull<bindings::virtio_vsock_sock>,
    transport: NonNull<bindings::virtio_transport>,
}

impl<'a> VirtioSock<'a> {
    /// Makes a reference from a [`Sock`].
    ///
    /// # Errors
    ///
    /// [`ENODEV`] if the socket has no transport.
    ///
    /// # Safety
    ///
    /// `sk` must be a vsock socket. Its transport, if it has one, must be a virtio transport, and
    /// must not change during `'a`. The transport does not change while the caller holds the socket
    /// lock. It does not change either if the socket is or was connected, and refuses to connect
    /// again (`keeps_transport`).
    pub(super) unsafe fn from_sk(sk: &'a Sock) -> Result<Self> {
        let vsk = sk.as_raw().cast::<bindings::vsock_sock>();
        // SAFETY: By the safety requirements `sk` is a vsock socket, and all sockets of the family
        // are allocated as a `struct vsock_sock`. Nobody writes the field during `'a`, because the
        // transport does not change.
        let vvs = unsafe { (*vsk).trans };
        // SAFETY: As above.
        let transport = unsafe { (*vsk).transport };
        // INVARIANT: By the safety requirements the transport is a virtio transport, whose `trans`
        // is a `struct virtio_vsock_sock`, and neither changes during `'a`. The transport is the
        // first field of a `struct virtio_transport`.
        Ok(Self {
            sk,
            vsk: NonNull::new(vsk).ok_or(ENODEV)?,
            vvs: NonNull::new(vvs.cast()).ok_or(ENODEV)?,
            transport: NonNull::new(transport.cast_mut().cast()).ok_or(ENODEV)?,
        })
    }

    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Errors
    ///
    /// [`ENODEV`] if the socket has no transport.
    ///
    /// # Safety
    ///
    /// `vsk` must point to a vsock socket that meets the requirements of [`VirtioSock::from_sk`].
    /// The caller holds a reference to it during `'a`.
    pub(crate) unsafe fn from_raw(vsk: *mut bindings::vsock_sock) -> Result<Self> {
        // SAFETY: The socket is live, and the caller's reference keeps it during `'a`.
        let sk = unsafe { Sock::from_raw(&raw mut (*vsk).sk) };
        // SAFETY: By the safety requirements the socket meets those of `from_sk()`.
        unsafe { Self::from_sk(sk) }
    }

    /// Returns the network layer's view of the socket.
    pub(super) fn sk(&self) -> &'a Sock {
        self.sk
    }

    /// Returns the pointer to the socket, which is live.
    pub(super) fn vsk_ptr(&self) -> NonNull<bindings::vsock_sock> {
        self.vsk
    }

    /// Returns the pointer to the transport state of the socket, which is valid.
    pub(super) fn vvs_ptr(&self) -> NonNull<bindings::virtio_vsock_sock> {
        self.vvs
    }

    /// Returns the pointer to the transport of the socket, which is valid.
    pub(super) fn transport_ptr(&self) -> NonNull<bindings::virtio_transport> {
        self.transport
    }

    /// Returns whether the socket has records: whether its type is `SOCK_SEQPACKET`.
    pub(super) fn is_record_socket(&self) -> bool {
        self.sk.sk_type() == SockType::SeqPacket
    }
}

/// A [`VirtioSock`] whose socket lock the caller holds.
///
/// # Invariants
///
/// The lock of this socket is held during `'a`, in a context that may sleep.
pub(crate) struct LockedVirtioSock<'a>(VirtioSock<'a>);

impl<'a> LockedVirtioSock<'a> {
    /// Makes a reference to a locked socket.
    ///
    /// # Safety
    ///
    /// The caller holds the socket lock of `vsk` during `'a`, and may sleep.
    pub(crate) unsafe fn new(vsk: VirtioSock<'a>) -> Self {
        // INVARIANT: By the safety requirements the lock of the socket is held during `'a`, and the
        // context may sleep.
        Self(vsk)
    }

    /// Returns the socket without the proof of its lock.
    pub(super) fn vsk(&self) -> &VirtioSock<'a> {
        &self.0
    }

    /// Returns the network layer's view of the socket.
    pub(crate) fn sk(&self) -> &'a Sock {
        self.0.sk
    }

    /// Takes all packets that await their verdict out of the receive queue.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes and releases `rx_lock`.
    pub(crate) fn take_awaiting_verdict(&self) -> impl PinInit<VerdictQueue<'_>> {
        VerdictQueue::new(self)
    }

    /// Returns whether the owner can read: there are as many bytes as the owner waits for
    /// (`SO_RCVLOWAT`), or there is a record.
    ///
    /// `vsock_data_ready()` in [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c)
    /// checks for bytes only. The check for a record is needed because the verdict can leave a
    /// record without bytes.
    ///
    /// # Context
    ///
    /// The caller holds the socket lock. Does not sleep. Takes and releases `rx_lock`.
    pub(crate) fn is_readable(&self) -> bool {
        let rx = self.lock_rx();
        rx.counters().rx_bytes >= self.sk().rcvlowat()
            || (self.0.is_record_socket() && rx.msg_count() > 0)
    }

    /// Resets the connection, because a received packet is lost.
    ///
    /// Reports the error [`ENOBUFS`] to the owner. The packets before the lost one stay readable.
    ///
    /// C function: `virtio_transport_reset_after_loss()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    ///
    /// # Context
    ///
    /// Process context. May sleep. The caller holds the socket lock, and no spinlock.
    pub(crate) fn reset_after_loss(&self) {
        // SAFETY: By the type invariant the socket is live and locked, and the context may sleep.
        // The caller holds no spinlock of the socket: the guards do not leave the `virtio` module.
        // The null pointer means that the reset does not answer a packet.
        unsafe {
            bindings::virtio_transport_reset_after_loss(self.0.vsk.as_ptr(), core::ptr::null_mut())
        };
    }
}
