// SPDX-License-Identifier: GPL-2.0

//! Makes headers for packets to the peer, and gives the packets to the transport.

use kernel::{
    bindings::{
        self,
        virtio_vsock_type_VIRTIO_VSOCK_TYPE_SEQPACKET as TYPE_SEQPACKET,
        virtio_vsock_type_VIRTIO_VSOCK_TYPE_STREAM as TYPE_STREAM, //
    },
    error::to_result,
    prelude::*,
    sync::{
        SpinLockBh,
        SpinLockBhGuard, //
    },
};

use super::{
    packet::{
        Header,
        Packet, //
    },
    socket::VirtioSock, //
};

/// Proof that `send_lock` of a socket is held, and the way to send a packet to its peer.
///
/// Dropping the value releases `send_lock`.
///
/// # Context
///
/// The caller must not sleep while it has this value.
///
/// # Invariants
///
/// `_guard` holds the `send_lock` of `vsk`.
pub(super) struct SendGuard<'a> {
    vsk: &'a VirtioSock<'a>,
    _guard: SpinLockBhGuard<'a, ()>,
}

impl VirtioSock<'_> {
    /// Makes the header of a packet to the peer with `len` bytes of data.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no locks of the socket.
    ///
    /// # Errors
    ///
    /// [`EOPNOTSUPP`] if the transport does not tell the local CID.
    pub(super) fn header(&self, op: u32, len: u32, flags: u32) -> Result<Header> {
        let (vsk, transport) = (self.vsk_ptr().as_ptr(), self.transport_ptr().as_ptr());
        // SAFETY: By the type invariant the transport is valid.
        let get_local_cid = unsafe { (*transport).transport.get_local_cid };
        let get_local_cid = get_local_cid.ok_or(EOPNOTSUPP)?;
        // SAFETY: The function has no arguments, and only reads the state of the transport.
        let src_cid = unsafe { get_local_cid() };
        let ty = if self.is_record_socket() {
            TYPE_SEQPACKET
        } else {
            TYPE_STREAM
        };
        Ok(Header(bindings::virtio_vsock_hdr {
            src_cid: u64::from(src_cid).to_le(),
            // SAFETY: By the type invariant the socket is live. Its addresses do not change after
            // it has been connected.
            dst_cid: u64::from(unsafe { (*vsk).remote_addr.svm_cid }).to_le(),
            // SAFETY: As above.
            src_port: unsafe { (*vsk).local_addr.svm_port }.to_le(),
            // SAFETY: As above.
            dst_port: unsafe { (*vsk).remote_addr.svm_port }.to_le(),
            len: len.to_le(),
            type_: (ty as u16).to_le(),
            op: (op as u16).to_le(),
            flags: flags.to_le(),
            ..Default::default()
        }))
    }

    /// Takes `send_lock`.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes `send_lock`. The caller holds neither
    /// `rx_lock` nor `tx_lock`, and must not sleep until it drops the returned value, which
    /// releases the lock.
    pub(super) fn lock_send(&self) -> SendGuard<'_> {
        let vvs = self.vvs_ptr().as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and its locks are initialised.
        let lock = unsafe { SpinLockBh::from_raw(&raw mut (*vvs).send_lock) };
        // INVARIANT: The guard holds the `send_lock` of this socket.
        SendGuard {
            vsk: self,
            _guard: lock.lock(),
        }
    }
}

impl SendGuard<'_> {
    /// Gives a packet to the transport.
    ///
    /// Each packet carries the `fwd_cnt` of this side to the peer. Because `send_lock` is held, no
    /// packet carries an older value than a packet that was sent earlier.
    ///
    /// C function: `virtio_transport_send_counted()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. The caller holds `send_lock`, which this
    /// value proves. Takes and releases `rx_lock`.
    ///
    /// # Errors
    ///
    /// The error of the transport. The packet is freed after an error, too.
    pub(super) fn send(&self, packet: Packet) -> Result {
        let (vsk, sk) = (self.vsk, self.vsk.sk());
        let mut skb = packet.into_skb();
        skb.set_owner_w(sk);
        let (transport, vvs) = (vsk.transport_ptr().as_ptr(), vsk.vvs_ptr().as_ptr());
        let (skb, net) = (skb.into_raw(), sk.net());
        // SAFETY: By the invariant of `VirtioSock` the transport and the state are valid. By the
        // type invariant `send_lock` of the socket is held. The packet is complete by the invariant
        // of `Packet`, and the transport becomes its owner. No transport sleeps in `send_pkt`.
        let sent = unsafe { bindings::virtio_transport_send_counted(transport, vvs, skb, net) };
        to_result(sent.min(0))
    }
}
