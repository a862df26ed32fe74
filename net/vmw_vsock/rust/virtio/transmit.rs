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

/// Proof that `send_lock` is held.
pub(super) struct SendGuard<'a>(#[expect(dead_code)] SpinLockBhGuard<'a, ()>);

impl<'a> VirtioSock<'a> {
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
        let vsk = self.vsk.as_ptr();
        // SAFETY: By the type invariant the transport is valid.
        let get_local_cid = unsafe { (*self.transport.as_ptr()).transport.get_local_cid };
        // SAFETY: The function has no arguments, and only reads the state of the transport.
        let src_cid = unsafe { get_local_cid.ok_or(EOPNOTSUPP)?() };
        let ty = if self.is_record_socket() {
            TYPE_SEQPACKET
        } else {
            TYPE_STREAM
        };
        Ok(Header(bindings::virtio_vsock_hdr {
            src_cid: u64::from(src_cid).to_le(),
            // SAFETY: The socket is live. Its addresses do not change after it has been connected.
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
    pub(super) fn lock_send(&self) -> SendGuard<'a> {
        // SAFETY: By the type invariant `vvs` is valid, and its locks are initialised.
        let lock = unsafe { SpinLockBh::from_raw(&raw mut (*self.vvs.as_ptr()).send_lock) };
        SendGuard(lock.lock())
    }

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
    /// Any context but hard interrupt. Does not sleep. The caller holds `send_lock`, which `_guard`
    /// proves. Takes and releases `rx_lock`.
    ///
    /// # Errors
    ///
    /// The error of the transport. The packet is freed after an error, too.
    pub(super) fn send(&self, packet: Packet, _guard: &SendGuard<'_>) -> Result {
        let mut skb = packet.into_skb();
        skb.set_owner_w(self.sk);
        let (transport, vvs) = (self.transport.as_ptr(), self.vvs.as_ptr());
        let (skb, net) = (skb.into_raw(), self.sk.net());
        // SAFETY: By the type invariant the transport and the state are valid. `send_lock` is held.
        // The packet is complete, and the transport becomes its owner. No transport sleeps in
        // `send_pkt`.
        let sent = unsafe { bindings::virtio_transport_send_counted(transport, vvs, skb, net) };
        to_result(sent.min(0))
    }
}
