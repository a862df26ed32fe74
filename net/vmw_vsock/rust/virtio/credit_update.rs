// SPDX-License-Identifier: GPL-2.0

//! Sends credit updates: packets without data that tell the peer how much it may send.

use kernel::{
    bindings::{
        self,
        virtio_vsock_op_VIRTIO_VSOCK_OP_CREDIT_UPDATE as OP_CREDIT_UPDATE, //
    },
    net::skbuff::SkBuff,
    prelude::*,
    sync::atomic::{
        atomic_load,
        Relaxed, //
    },
};

use super::{
    packet::{
        Header,
        Packet, //
    },
    socket::VirtioSock, //
};

impl VirtioSock<'_> {
    /// Returns whether the peer can send, so that it can use a credit update.
    ///
    /// After a connection has ended, no update may be sent: the peer may have made a new connection
    /// with the same addresses, and would take the update for one of the new connection.
    ///
    /// C function: `virtio_transport_peer_sends()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    ///
    /// # Context
    ///
    /// Any context. Does not sleep. Takes no locks, so the answer may be out of date on return.
    pub(super) fn peer_sends(&self) -> bool {
        let vsk = self.vsk_ptr().as_ptr();
        // SAFETY: By the type invariant the socket is live. C stores the word in one access, with
        // or without `WRITE_ONCE()`.
        let peer_shutdown = unsafe { atomic_load(&raw mut (*vsk).peer_shutdown, Relaxed) };
        self.sk().is_established()
            && !self.sk().is_recv_shutdown()
            && peer_shutdown & bindings::SEND_SHUTDOWN == 0
    }

    /// Sends the peer a credit update, if the peer can send.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases `send_lock` and
    /// `rx_lock`. The caller holds neither of them, nor `tx_lock`.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] if there is no memory, or the error of the transport. If the peer cannot send,
    /// that is not an error.
    pub(super) fn send_credit_update(&self) -> Result {
        let header = self.header(OP_CREDIT_UPDATE, 0, 0)?;
        let skb = SkBuff::new(Header::SIZE)?;
        // SAFETY: The buffer is new, so its head is not shared. It has room for the header.
        let packet = unsafe { Packet::new(skb, header) };
        let guard = self.lock_send();
        // This check needs `send_lock`. When the peer shuts down, this side first records the
        // shutdown, and then takes `send_lock` to send its answer. The peer can make a new
        // connection with the same addresses only after it has the answer. So if this check finds
        // no shutdown, the update is sent before the answer.
        if !self.peer_sends() {
            return Ok(());
        }
        guard.send(packet)
    }

    /// Sends the peer a credit update in 10 ms, if the peer still needs it then.
    ///
    /// If the last update has `failed`, the delay is 100 ms. If an update is already scheduled,
    /// this function does nothing.
    ///
    /// C function: `virtio_transport_credit_later()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes no locks of the socket.
    pub(super) fn send_credit_update_later(&self, failed: bool) {
        // SAFETY: By the type invariant the socket is live. Only a socket that has been in a map
        // has redirected credit, and such a socket keeps its transport (`keeps_transport`).
        unsafe { bindings::virtio_transport_credit_later(self.vsk_ptr().as_ptr(), failed) };
    }
}
