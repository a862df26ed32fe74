// SPDX-License-Identifier: GPL-2.0

//! Sends a redirected buffer to the peer of a vsock target.
//!
//! The packets share the pages of the buffer where they can. Nothing here sleeps, so that a packet
//! can be sent in the context in which the verdict ran. `sendmsg()` differs in both: it copies the
//! data of user space, and may sleep.
//!
//! [`tx_credit`](super::tx_credit) decides how much is sent, and handles a record that does not
//! fit.

use kernel::{
    bindings::{
        self,
        virtio_vsock_op_VIRTIO_VSOCK_OP_RW as OP_RW, //
    },
    net::skbuff::SkBuffSlice,
    prelude::*, //
};

use pin_init::stack_pin_init;

use super::{
    packet::{
        Header,
        Packet,
        PacketQueue,
        MAX_PACKET, //
    },
    socket::VirtioSock,
    tx_credit::{
        TxCredit,
        Want, //
    },
};

/// The largest size of a small packet, in bytes. Core sockmap merges only packets of a stream that
/// are not larger than this.
const SMALL_PACKET: u32 = 4096;

impl VirtioSock<'_> {
    /// Sends bytes of a buffer, and returns the number of bytes that were sent.
    ///
    /// A record is sent as a whole. If a record is too large for one packet, all its packets are
    /// made before the first is sent, and no other packet is sent in between. With `all`, all bytes
    /// are sent in one packet, or none are sent.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases `tx_lock`, `send_lock`
    /// and `rx_lock`. The caller can hold spinlocks of other sockets and the `ingress_lock` of the
    /// psock.
    ///
    /// # Errors
    ///
    /// * [`EAGAIN`] if there is too little credit left, or if the peer cannot be reached for the
    ///   moment. With `all`, also if the bytes should be merged with others
    ///   ([`TxState::may_send_small_now`](super::tx_state::TxState::may_send_small_now)), or do not
    ///   fit in one packet.
    /// * [`EMSGSIZE`] if a record is larger than the receive buffer of the peer or of this side.
    /// * [`EPIPE`] if the socket was shut down for sending.
    /// * [`ENOMEM`] if there is no memory.
    /// * The error of the transport. Only in this case can a part of a record have been sent.
    pub(crate) fn enqueue(&self, data: SkBuffSlice<'_>, all: bool) -> Result<u32> {
        let len = data.len();
        // A single packet is sent or not, but several packets could be sent in part. Only the
        // backlog can resume after a part, and the backlog calls this without `all`.
        if all && len > MAX_PACKET {
            return Err(EAGAIN);
        }
        let want = if self.is_record_socket() {
            Want::Record
        } else if all {
            if len <= SMALL_PACKET && !self.lock_tx().may_send_small_now() {
                return Err(EAGAIN);
            }
            Want::All
        } else {
            Want::Some
        };
        let mut credit = TxCredit::take(*self, want, len)?;
        let granted = credit.left();

        stack_pin_init!(let packets = PacketQueue::new());
        self.make_packets(packets.as_mut(), data, granted, want)?;
        self.send_packets(packets, &mut credit, want)
    }

    /// Makes packets of the first `granted` bytes of `data`, and puts them into `packets`.
    fn make_packets(
        &self,
        mut packets: Pin<&mut PacketQueue>,
        data: SkBuffSlice<'_>,
        granted: u32,
        want: Want,
    ) -> Result {
        let mut done = 0;
        while done < granted {
            let bytes = (granted - done).min(MAX_PACKET);
            let packet = self.data_packet(data.part(done, bytes)?)?;
            done += bytes;
            let packet = if done == granted && want == Want::Record {
                packet.ending_record()
            } else {
                packet
            };
            packets.as_mut().push_back(packet);
        }
        Ok(())
    }

    /// Sends `packets` without a packet of another sender in between, and spends `credit` on them.
    ///
    /// Returns the number of bytes that were sent.
    ///
    /// # Context
    ///
    /// Any context but hard interrupt. Does not sleep. Takes and releases `send_lock` and
    /// `rx_lock`.
    fn send_packets(
        &self,
        mut packets: Pin<&mut PacketQueue>,
        credit: &mut TxCredit<'_>,
        want: Want,
    ) -> Result<u32> {
        let guard = self.lock_send();
        // Check this with the lock held: `shutdown()` may have told the peer that no more data
        // follows, and the peer expects no data after that.
        if self.sk().is_send_shutdown() {
            return Err(EPIPE);
        }
        let mut sent = 0;
        while let Some(packet) = packets.as_mut().pop_front() {
            let bytes = packet.len();
            match guard.send(packet) {
                Ok(()) => {}
                // Report the bytes that were sent. The next call gets the error.
                Err(_) if sent > 0 && want != Want::Record => break,
                // A guest that is stopped can resume, so let the backlog try again.
                Err(EHOSTUNREACH) if sent == 0 => return Err(EAGAIN),
                Err(err) => return Err(err),
            }
            credit.spend(bytes);
            sent += bytes;
        }
        Ok(sent)
    }

    /// Makes one packet with the bytes of `data`.
    ///
    /// The packet shares the pages of the buffer if the transport can send fragments.
    fn data_packet(&self, data: SkBuffSlice<'_>) -> Result<Packet> {
        // SAFETY: By the type invariant the transport is valid.
        let can_msgzerocopy = unsafe { (*self.transport_ptr().as_ptr()).can_msgzerocopy };
        let share = match can_msgzerocopy {
            // SAFETY: The function only reads the state of the transport. The argument is the
            // number of elements that a packet needs in a virtqueue: one for each fragment, one for
            // the header, and one for a linear part.
            Some(can_zerocopy) => unsafe { can_zerocopy(bindings::MAX_SKB_FRAGS as c_int + 2) },
            None => true,
        };
        let header = self.header(OP_RW, data.len(), 0)?;
        let skb = data.to_skb(Header::SIZE, share)?;
        // SAFETY: The buffer is new and has room for the header. Its pages can be shared, but its
        // head is not.
        Ok(unsafe { Packet::new(skb, header) })
    }
}
