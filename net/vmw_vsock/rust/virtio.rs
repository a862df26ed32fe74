// SPDX-License-Identifier: GPL-2.0

//! The receive queue of a virtio vsock socket, and the credit that its peer has.
//!
//! C header: [`include/linux/virtio_vsock.h`](srctree/include/linux/virtio_vsock.h)

use kernel::{
    bindings,
    net::{
        skbuff::{
            SkBuff,
            SkBuffQueue, //
        },
        sock::Sock, //
    },
    prelude::*,
    sync::{
        SpinLockBh,
        SpinLockBhGuard, //
    },
};

use core::ptr::NonNull;

/// A vsock socket with a virtio transport, locked by the receive path.
///
/// # Invariants
///
/// `vsk` is a live socket, the socket lock of which is held during `'a`, `sk` its beginning, and
/// `vvs` its transport state.
pub(crate) struct VirtioRef<'a> {
    sk: &'a Sock,
    vsk: NonNull<bindings::vsock_sock>,
    vvs: NonNull<bindings::virtio_vsock_sock>,
}

/// The fields of the transport state that `rx_lock` protects.
///
/// # Invariants
///
/// `vvs` is valid and its `rx_lock` is the one that `_guard` holds.
struct RxState<'a> {
    vvs: NonNull<bindings::virtio_vsock_sock>,
    _guard: SpinLockBhGuard<'a, ()>,
}

/// What is in the header and the control block of a packet, in bytes where it is a length.
struct PacketInfo {
    /// The payload when it was received; this much credit it holds.
    len: u32,
    /// How much of it the owner of the socket has read already.
    offset: u32,
    /// Whether it ends a record.
    eom: bool,
}

impl PacketInfo {
    /// # Safety
    ///
    /// The packet comes from the receive queue of a virtio transport: its head begins with the
    /// header, and its control block is still the transport's.
    unsafe fn of(skb: &SkBuff) -> Self {
        let skb = skb.as_raw();
        // SAFETY: The buffer is valid, and has a header by the safety requirements.
        let header = unsafe { (*skb).head.cast::<bindings::virtio_vsock_hdr>() };
        // SAFETY: As above; the header is packed, which is why it is copied unaligned.
        let header = unsafe { header.read_unaligned() };
        // SAFETY: By the safety requirements.
        let offset =
            unsafe { (*(&raw const (*skb).cb).cast::<bindings::virtio_vsock_skb_cb>()).offset };

        Self {
            len: u32::from_le(header.len),
            offset,
            eom: u32::from_le(header.flags) & bindings::virtio_vsock_rw_VIRTIO_VSOCK_SEQ_EOM != 0,
        }
    }
}

impl<'a> VirtioRef<'a> {
    /// Makes a reference from a pointer that C code passed in.
    ///
    /// # Errors
    ///
    /// [`ENODEV`] if the socket has no transport state.
    ///
    /// # Safety
    ///
    /// `vsk` must point to a live vsock socket, whose transport is a virtio one and whose socket
    /// lock the caller holds during `'a`.
    pub(crate) unsafe fn from_raw(vsk: *mut bindings::vsock_sock) -> Result<Self> {
        let vsk = NonNull::new(vsk).ok_or(ENODEV)?;
        // SAFETY: The socket is live, and its lock keeps the transport as it is.
        let vvs = unsafe { (*vsk.as_ptr()).trans };
        // SAFETY: The socket is live, and stays so while its lock is held.
        let sk = unsafe { Sock::from_raw(&raw mut (*vsk.as_ptr()).sk) };
        // INVARIANT: By the safety requirements, `trans` is the state of a virtio transport.
        Ok(Self {
            sk,
            vsk,
            vvs: NonNull::new(vvs.cast()).ok_or(ENODEV)?,
        })
    }

    /// Returns the network layer's view of the socket.
    pub(crate) fn sk(&self) -> &'a Sock {
        self.sk
    }

    /// Takes `rx_lock`. Does not sleep, and the caller must not until it is released.
    fn lock_rx(&self) -> RxState<'_> {
        // SAFETY: By the type invariant, `vvs` is valid, and its locks are initialised.
        let lock = unsafe { SpinLockBh::from_raw(&raw mut (*self.vvs.as_ptr()).rx_lock) };
        // INVARIANT: The guard is that of this `rx_lock`.
        RxState {
            vvs: self.vvs,
            _guard: lock.lock(),
        }
    }

    /// Takes the first packet out of the receive queue, without what the owner has read of it.
    ///
    /// The space in the queue is the peer's again, which [`Self::send_credit_update`] tells it.
    /// Does not sleep.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] if the read bytes could not be taken off; the packet stays in the queue.
    pub(crate) fn take(&self) -> Result<Option<SkBuff>> {
        let mut rx = self.lock_rx();

        let Some(mut skb) = rx.queue().pop() else {
            return Ok(None);
        };
        // Pulling may move the head, so look first.
        //
        // SAFETY: The packet was in the receive queue until just now.
        let info = unsafe { PacketInfo::of(&skb) };
        if let Err(err) = skb.pull(info.offset) {
            rx.queue().push_front(skb);
            return Err(err);
        }
        rx.account(&info, skb.len());
        Ok(Some(skb))
    }

    /// Tells the peer how much it may send. May sleep.
    ///
    /// If that fails for lack of memory, the peer learns it from the next packet to it, if one is
    /// sent. The C version and the native receive do the same.
    ///
    /// C function: `virtio_transport_send_credit_update()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    pub(crate) fn send_credit_update(&self) {
        // SAFETY: By the type invariant, the socket is live and locked; no spinlock is held, as
        // `RxState` does not leave this file.
        unsafe { bindings::virtio_transport_send_credit_update(self.vsk.as_ptr()) };
    }
}

impl RxState<'_> {
    fn queue(&mut self) -> Pin<&mut SkBuffQueue> {
        // SAFETY: By the type invariant the queue is valid and we hold the lock that protects it.
        // Received packets are not shared.
        unsafe { SkBuffQueue::from_raw(&raw mut (*self.vvs.as_ptr()).rx_queue) }
    }

    /// Accounts for a packet that left the queue with `unread` bytes that nobody has read.
    ///
    /// Does what `virtio_transport_dec_rx_pkt()` does in C. The counters are modulo 2^32.
    fn account(&mut self, info: &PacketInfo, unread: u32) {
        let vvs = self.vvs.as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        let rx_bytes = unsafe { &mut (*vvs).rx_bytes };
        // SAFETY: As above.
        let buf_used = unsafe { &mut (*vvs).buf_used };
        // SAFETY: As above.
        let fwd_cnt = unsafe { &mut (*vvs).fwd_cnt };
        // SAFETY: As above.
        let msg_count = unsafe { &mut (*vvs).msg_count };

        *rx_bytes = rx_bytes.wrapping_sub(unread);
        *buf_used = buf_used.wrapping_sub(info.len);
        *fwd_cnt = fwd_cnt.wrapping_add(info.len);
        *msg_count = msg_count.wrapping_sub(info.eom.into());
    }
}
