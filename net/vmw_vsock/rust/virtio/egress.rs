// SPDX-License-Identifier: GPL-2.0

//! What a virtio vsock socket sends for a sockmap: redirected buffers, and credit updates.
//!
//! The native way to send copies what user space has, and may sleep. Here the data is in buffers of
//! the kernel already, the pages of which go along, and nothing sleeps, so that a packet can leave
//! from where the verdict ran.

use super::*;

use kernel::bindings::{
    virtio_vsock_op_VIRTIO_VSOCK_OP_CREDIT_UPDATE as OP_CREDIT_UPDATE,
    virtio_vsock_op_VIRTIO_VSOCK_OP_RW as OP_RW,
    virtio_vsock_type_VIRTIO_VSOCK_TYPE_SEQPACKET as TYPE_SEQPACKET,
    virtio_vsock_type_VIRTIO_VSOCK_TYPE_STREAM as TYPE_STREAM, //
};

/// A packet of a stream with at most so many bytes had better be merged with others, which is what
/// core sockmap merges.
const SMALL: u32 = 4096;

/// How much of what a socket wants to send it gets credit for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    /// As much as there is.
    Some,
    /// All or nothing.
    All,
    /// All or nothing, and an error if there can never be enough.
    Record,
}

/// Decides how many of `len` bytes may be sent, when the peer takes `buf_size` bytes in all and
/// `in_flight` bytes are on their way to its owner.
///
/// # Errors
///
/// [`EAGAIN`] if none for now, [`EMSGSIZE`] if never.
fn grant(want: Want, len: u32, buf_size: u32, in_flight: u32) -> Result<u32> {
    // The peer may have made its buffer smaller than what it holds.
    let space = buf_size.saturating_sub(in_flight);
    let granted = match want {
        Want::Record if len > buf_size => return Err(EMSGSIZE),
        Want::Some => len.min(space),
        Want::All | Want::Record if len <= space => len,
        Want::All | Want::Record => 0,
    };
    if granted == 0 {
        return Err(EAGAIN);
    }
    Ok(granted)
}

/// Credit of the peer to send, in bytes. Dropping it puts back what was not spent.
struct TxCredit<'a> {
    vsk: VirtioSock<'a>,
    left: u32,
}

impl<'a> TxCredit<'a> {
    fn take(vsk: VirtioSock<'a>, want: Want, len: u32) -> Result<Self> {
        let mut tx = vsk.lock_tx();
        let left = grant(want, len, tx.buf_size(), tx.in_flight())?;
        tx.add(left);
        drop(tx);
        Ok(Self { vsk, left })
    }

    /// Spends `bytes` of it on a packet that was sent.
    fn spend(&mut self, bytes: u32) {
        self.left = self.left.saturating_sub(bytes);
    }
}

impl Drop for TxCredit<'_> {
    fn drop(&mut self) {
        if self.left != 0 {
            self.vsk.lock_tx().sub(self.left);
            // The owner may have found no space meanwhile, and no packet of the peer tells it.
            self.vsk.sk.write_space();
        }
    }
}

/// That `send_lock` is held.
struct SendGuard<'a>(#[expect(dead_code)] SpinLockBhGuard<'a, ()>);

impl TxState<'_> {
    /// The most bytes that may be in flight.
    ///
    /// C function: `virtio_transport_tx_buf_size()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    fn buf_size(&self) -> u32 {
        let vvs = self.vvs.as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let peer = unsafe { (*vvs).peer_buf_alloc };
        // SAFETY: `vvs` is valid; C writes the word as one.
        peer.min(unsafe { atomic_load(&raw mut (*vvs).buf_alloc, Relaxed) })
    }

    /// The bytes that were sent and that the peer has not consumed.
    fn in_flight(&self) -> u32 {
        let vvs = self.vvs.as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let sent = unsafe { (*vvs).tx_cnt };
        // SAFETY: As above.
        sent.wrapping_sub(unsafe { (*vvs).peer_fwd_cnt })
    }

    /// Whether the transport has packets that it has not sent yet.
    fn is_behind(&self) -> bool {
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        unsafe { (*self.vvs.as_ptr()).bytes_unsent != 0 }
    }

    /// Decides whether a small packet of a stream is sent at once, or gathers in the backlog, which
    /// merges those that come soon after each other.
    ///
    /// One goes at once in each jiffy, or when the peer has sent something since the last one did,
    /// which then was a request that it has answered.
    fn may_go_alone(&mut self) -> bool {
        let vvs = self.vvs.as_ptr();
        // SAFETY: The kernel writes the word as one.
        let now = unsafe { atomic_load(&raw mut bindings::jiffies, Relaxed) };
        // SAFETY: By the type invariant `vvs` is valid; C writes the word as one.
        let consumed = unsafe { atomic_load(&raw mut (*vvs).fwd_cnt, Relaxed) };
        // SAFETY: As above. It need not be of the same moment: a reply changes the sum.
        let queued = unsafe { atomic_load(&raw mut (*vvs).buf_used, Relaxed) };
        let received = consumed.wrapping_add(queued);

        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let alone_at = unsafe { &mut (*vvs).alone_at };
        // SAFETY: As above.
        let alone_received = unsafe { &mut (*vvs).alone_received };
        if self.is_behind() || (*alone_at == now && *alone_received == received) {
            return false;
        }
        *alone_at = now;
        *alone_received = received;
        true
    }

    /// Counts `bytes` as sent.
    fn add(&mut self, bytes: u32) {
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let tx_cnt = unsafe { &mut (*self.vvs.as_ptr()).tx_cnt };
        *tx_cnt = tx_cnt.wrapping_add(bytes);
        // SAFETY: As above.
        let unsent = unsafe { &mut (*self.vvs.as_ptr()).bytes_unsent };
        *unsent = unsent.wrapping_add(bytes as usize);
    }

    /// Takes back what [`TxState::add`] did.
    fn sub(&mut self, bytes: u32) {
        // SAFETY: By the type invariant `vvs` is valid, and `tx_lock`, which protects the field, is
        // held.
        let tx_cnt = unsafe { &mut (*self.vvs.as_ptr()).tx_cnt };
        *tx_cnt = tx_cnt.wrapping_sub(bytes);
        // SAFETY: As above.
        let unsent = unsafe { &mut (*self.vvs.as_ptr()).bytes_unsent };
        *unsent = unsent.wrapping_sub(bytes as usize);
    }
}

impl<'a> VirtioSock<'a> {
    /// Takes `tx_lock`. Does not sleep, and the caller must not until it is released.
    fn lock_tx(&self) -> TxState<'a> {
        // SAFETY: By the type invariant, `vvs` is valid, and its locks are initialised.
        let lock = unsafe { SpinLockBh::from_raw(&raw mut (*self.vvs.as_ptr()).tx_lock) };
        // INVARIANT: The guard is that of this `tx_lock`.
        TxState {
            vvs: self.vvs,
            _guard: lock.lock(),
        }
    }

    /// Makes the header of a packet to the peer with `len` bytes of data.
    fn header(&self, op: u32, len: u32, flags: u32) -> Result<Header> {
        let vsk = self.vsk.as_ptr();
        // SAFETY: By the type invariant the transport is valid.
        let get_local_cid = unsafe { (*self.transport.as_ptr()).transport.get_local_cid };
        // SAFETY: The function has no arguments, and looks at the transport alone.
        let src_cid = unsafe { get_local_cid.ok_or(EOPNOTSUPP)?() };
        let ty = if self.is_record_socket() {
            TYPE_SEQPACKET
        } else {
            TYPE_STREAM
        };
        Ok(Header(bindings::virtio_vsock_hdr {
            src_cid: u64::from(src_cid).to_le(),
            // SAFETY: The socket is live, and keeps its addresses once it was connected.
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

    /// Takes `send_lock`. Does not sleep, and the caller must not until it is released.
    fn lock_send(&self) -> SendGuard<'a> {
        // SAFETY: By the type invariant, `vvs` is valid, and its locks are initialised.
        let lock = unsafe { SpinLockBh::from_raw(&raw mut (*self.vvs.as_ptr()).send_lock) };
        SendGuard(lock.lock())
    }

    /// Gives a packet to the transport. Does not sleep; not in hard interrupts, perhaps with
    /// spinlocks held.
    ///
    /// What the packet says about the space of this side is as new as what any earlier one said, as
    /// `send_lock` is held, which the guard proves.
    ///
    /// C function: `virtio_transport_send_counted()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    fn send(&self, mut packet: Packet, _guard: &SendGuard<'_>) -> Result {
        packet.0.set_owner_w(self.sk);
        let (transport, vvs) = (self.transport.as_ptr(), self.vvs.as_ptr());
        let (skb, net) = (packet.0.into_raw(), self.sk.net());
        // SAFETY: By the type invariant the transport and the state are valid; `send_lock` is held.
        // The packet is complete, and its ownership goes to the transport. Nothing there sleeps.
        let sent = unsafe { bindings::virtio_transport_send_counted(transport, vvs, skb, net) };
        to_result(sent.min(0))
    }

    /// Tells the peer how much it may send, if it can. Does not sleep; not in hard interrupts,
    /// perhaps with spinlocks held.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] without memory, or why the transport could not send it.
    pub(super) fn send_credit_update(&self) -> Result {
        let header = self.header(OP_CREDIT_UPDATE, 0, 0)?;
        // SAFETY: The buffer is new, with that much room.
        let packet = unsafe { Packet::new(SkBuff::new(Header::SIZE)?, header) };
        let guard = self.lock_send();
        // When the peer shuts down, that is seen before the answer is sent, which needs the lock,
        // and so before there can be a new connection with the same addresses.
        if !self.peer_sends() {
            return Ok(());
        }
        self.send(packet, &guard)
    }

    /// Tells the peer in 10 ms, if it needs it then, or after one `failed`, in 100 ms. Does not
    /// sleep.
    ///
    /// C function: `virtio_transport_credit_later()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    pub(super) fn send_credit_update_later(&self, failed: bool) {
        // SAFETY: By the type invariant, the socket is live. What is told of redirects has been in
        // a map, and keeps its transport (`keeps_transport`).
        unsafe { bindings::virtio_transport_credit_later(self.vsk.as_ptr(), failed) };
    }

    /// Sends bytes of a buffer, and returns how many were sent.
    ///
    /// A record goes as a whole: in one packet, or if it is too large for that, in packets that are
    /// all made before the first is sent, with no other in between. With `all` everything goes in
    /// one packet. Does not sleep; not in hard interrupts, perhaps with spinlocks held.
    ///
    /// # Errors
    ///
    /// [`EAGAIN`] if the peer has no space or cannot be reached for now, or with `all` if the bytes
    /// had better be merged or are too many for a packet, [`EMSGSIZE`] if a record is larger than
    /// the peer's buffer, [`ENOMEM`] without memory, or why the transport could not send it. Only
    /// in the last case can a part have been sent.
    pub(crate) fn enqueue(&self, data: SkBuffSlice<'_>, all: bool) -> Result<u32> {
        let len = data.len();
        // One packet goes or does not. The backlog can go on where it was, and holds no spinlock.
        if all && len > MAX_PACKET {
            return Err(EAGAIN);
        }
        let want = if self.is_record_socket() {
            Want::Record
        } else if all {
            if len <= SMALL && !self.lock_tx().may_go_alone() {
                return Err(EAGAIN);
            }
            Want::All
        } else {
            Want::Some
        };
        let mut credit = TxCredit::take(*self, want, len)?;
        let granted = credit.left;

        stack_pin_init!(let packets = SkBuffQueue::new());
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
            packets.as_mut().push_back(packet.0);
        }

        let guard = self.lock_send();
        // The packet that tells the peer so may have been sent before the lock was taken.
        if self.sk.is_send_shutdown() {
            return Err(EPIPE);
        }
        let mut sent = 0;
        while let Some(skb) = packets.as_mut().pop_front() {
            let bytes = skb.len();
            // SAFETY: It was a packet when it went into the queue just now.
            match self.send(unsafe { Packet::from_skb(skb) }, &guard) {
                Ok(()) => {}
                // The next call will fail, then.
                Err(_) if sent > 0 && want != Want::Record => break,
                // A guest that is stopped can go on.
                Err(EHOSTUNREACH) if sent == 0 => return Err(EAGAIN),
                Err(err) => return Err(err),
            }
            credit.spend(bytes);
            sent += bytes;
        }
        Ok(sent)
    }

    /// Makes a packet of bytes of a buffer, sharing its pages.
    fn data_packet(&self, data: SkBuffSlice<'_>) -> Result<Packet> {
        // SAFETY: By the type invariant the transport is valid.
        let share = match unsafe { (*self.transport.as_ptr()).can_msgzerocopy } {
            // SAFETY: The function looks at the transport alone. Two more are for the header and a
            // linear part.
            Some(can_zerocopy) => unsafe { can_zerocopy(bindings::MAX_SKB_FRAGS as c_int + 2) },
            None => true,
        };
        let header = self.header(OP_RW, data.len(), 0)?;
        let skb = data.to_skb(Header::SIZE, share)?;
        // SAFETY: The buffer is new, with that much room; only its pages can be shared.
        Ok(unsafe { Packet::new(skb, header) })
    }
}

impl Packet {
    /// Makes it the last packet of a record.
    fn ending_record(mut self) -> Self {
        let header = self.header().with_end(EOM);
        self.set_header(header);
        self
    }
}

#[kunit_tests(vsock_sockmap_grant)]
mod tests {
    use super::*;

    const SIZES: [u32; 7] = [0, 1, 4096, 65_536, 262_144, 1 << 31, u32::MAX];

    /// Calls `check` with a length, the size of the peer's buffer, and how much is in flight.
    fn for_each_case(check: impl Fn(u32, u32, u32)) {
        for len in SIZES {
            for buf_size in SIZES {
                for in_flight in SIZES {
                    if len != 0 {
                        check(len, buf_size, in_flight);
                    }
                }
            }
        }
    }

    #[test]
    fn no_more_is_sent_than_the_peer_has_space_for() {
        for_each_case(|len, buf_size, in_flight| {
            for want in [Want::Some, Want::All, Want::Record] {
                if let Ok(granted) = grant(want, len, buf_size, in_flight) {
                    assert!(granted > 0);
                    assert!(granted <= len);
                    assert!(granted <= buf_size.saturating_sub(in_flight));
                }
            }
        });
    }

    #[test]
    fn stream_takes_what_there_is() {
        for_each_case(|len, buf_size, in_flight| {
            let space = buf_size.saturating_sub(in_flight);
            let granted = grant(Want::Some, len, buf_size, in_flight);
            assert_eq!(granted.unwrap_or(0), len.min(space));
            assert_eq!(granted.is_err(), space == 0);
        });
    }

    #[test]
    fn record_is_sent_whole_or_not_at_all() {
        for_each_case(|len, buf_size, in_flight| {
            let fits = len <= buf_size.saturating_sub(in_flight);
            match grant(Want::Record, len, buf_size, in_flight) {
                Ok(granted) => assert!(fits && granted == len),
                Err(EMSGSIZE) => assert!(len > buf_size),
                Err(err) => assert!(err == EAGAIN && !fits && len <= buf_size),
            }
        });
    }
}
