// SPDX-License-Identifier: GPL-2.0

//! A vsock packet: its buffer, its header, and its control block. A queue of such packets.
//!
//! C header: [`include/linux/virtio_vsock.h`](srctree/include/linux/virtio_vsock.h)

use kernel::{
    bindings,
    net::skbuff::{
        SkBuff,
        SkBuffQueue, //
    },
    prelude::*, //
};

/// The flag of the last packet of a record.
pub(super) const EOM: u32 = bindings::virtio_vsock_rw_VIRTIO_VSOCK_SEQ_EOM;
/// The flag of the last packet of a record, if the record was sent with `MSG_EOR`.
pub(super) const EOR: u32 = bindings::virtio_vsock_rw_VIRTIO_VSOCK_SEQ_EOR;

/// The largest number of bytes that one packet carries.
pub(super) const MAX_PACKET: u32 = bindings::VIRTIO_VSOCK_MAX_PKT_BUF_SIZE;

/// A packet in the form that the receive queue and the transport expect.
///
/// # Invariants
///
/// The head of the buffer is not shared. It begins with the header of the packet, in front of the
/// data. The control block is a `struct virtio_vsock_skb_cb`.
pub(super) struct Packet(SkBuff);

impl Packet {
    /// Makes a packet from a buffer that the verdict has passed, and marks its verdict as done.
    ///
    /// The verdict may have overwritten the header and the control block, so this function writes
    /// both again.
    ///
    /// # Context
    ///
    /// Process context. May sleep. Takes no locks.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] if there is no memory for the header. The buffer is then freed.
    pub(super) fn restore(mut skb: SkBuff, header: Header) -> Result<Self> {
        skb.ensure_headroom(Header::SIZE)?;
        // SAFETY: `ensure_headroom()` made the head exclusive and left room for the header.
        let mut packet = unsafe { Self::new(skb, header) };
        packet.set_verdict_done();
        Ok(packet)
    }

    /// Makes a packet from a buffer, and writes the header and an empty control block.
    ///
    /// # Safety
    ///
    /// The head of the buffer is not shared, and has [`Header::SIZE`] bytes of room before the
    /// data.
    pub(super) unsafe fn new(skb: SkBuff, header: Header) -> Self {
        // INVARIANT: By the safety requirements the head is exclusive and has room for the header.
        // The header and the control block are written below.
        let mut packet = Self(skb);
        packet.set_header(header);
        packet.set_cb(Default::default());
        packet
    }

    /// Returns the number of bytes of data.
    pub(super) fn len(&self) -> u32 {
        self.0.len()
    }

    /// Removes `bytes` bytes from the front of the data, see [`SkBuff::pull`].
    pub(super) fn pull(&mut self, bytes: u32) -> Result {
        // INVARIANT: If the data needs a new head, C code copies the whole old head to it, with the
        // header at its beginning. The control block does not change.
        self.0.pull(bytes)
    }

    /// Appends the data of the packets in `rest`, see [`SkBuff::append_frags`].
    ///
    /// # Safety
    ///
    /// The packet is not charged to a socket.
    pub(super) unsafe fn append(&mut self, rest: Pin<&mut PacketQueue>) -> Result {
        // INVARIANT: `append_frags()` only takes buffers out of the queue, so each buffer that is
        // left in the queue is still a packet.
        let rest = rest.project().skbs;
        // SAFETY: By the type invariant the head is not shared, and by the safety requirements the
        // buffer is not charged to a socket.
        unsafe { self.0.append_frags(rest) }
    }

    /// Converts the packet into its buffer.
    pub(super) fn into_skb(self) -> SkBuff {
        self.0
    }

    /// Returns a copy of the header.
    pub(super) fn header(&self) -> Header {
        // SAFETY: The buffer is valid by the invariant of `SkBuff`.
        let head = unsafe { (*self.0.as_raw()).head };
        // SAFETY: By the type invariant the head begins with the header. The header is packed, so
        // the read is an unaligned copy.
        Header(unsafe { head.cast::<bindings::virtio_vsock_hdr>().read_unaligned() })
    }

    /// Overwrites the header.
    pub(super) fn set_header(&mut self, header: Header) {
        // SAFETY: The buffer is valid by the invariant of `SkBuff`.
        let head = unsafe { (*self.0.as_raw()).head };
        // SAFETY: By the type invariant the head begins with the header and is not shared.
        unsafe {
            head.cast::<bindings::virtio_vsock_hdr>()
                .write_unaligned(header.0)
        };
    }

    /// Marks the packet as one that has had its verdict.
    pub(super) fn set_verdict_done(&mut self) {
        let cb = bindings::virtio_vsock_skb_cb {
            verdict_done: true,
            ..self.cb()
        };
        self.set_cb(cb);
    }

    /// Overwrites the control block.
    pub(super) fn set_cb(&mut self, cb: bindings::virtio_vsock_skb_cb) {
        // SAFETY: By the invariant of `SkBuff` the buffer is valid, and this value has the only
        // reference to it. The control block is aligned to 8 bytes, and larger than a
        // `struct virtio_vsock_skb_cb`.
        unsafe {
            (&raw mut (*self.0.as_raw()).cb)
                .cast::<bindings::virtio_vsock_skb_cb>()
                .write(cb)
        };
    }

    /// Returns a copy of the control block.
    pub(super) fn cb(&self) -> bindings::virtio_vsock_skb_cb {
        // SAFETY: The buffer is valid by the invariant of `SkBuff`. By the type invariant its
        // control block is a `struct virtio_vsock_skb_cb`.
        unsafe {
            (&raw const (*self.0.as_raw()).cb)
                .cast::<bindings::virtio_vsock_skb_cb>()
                .read()
        }
    }

    /// Marks this packet as the last one of a record, and returns the packet.
    pub(super) fn ending_record(mut self) -> Self {
        let header = self.header().with_end(EOM);
        self.set_header(header);
        self
    }
}

/// A queue of packets.
///
/// Only this file puts buffers into the queue and takes them out, so that what comes out is known
/// to be a [`Packet`].
///
/// # Invariants
///
/// Each buffer in the queue meets the invariants of [`Packet`].
#[pin_data]
#[repr(transparent)]
pub(super) struct PacketQueue {
    #[pin]
    skbs: SkBuffQueue,
}

impl PacketQueue {
    /// Makes an empty queue.
    pub(super) fn new() -> impl PinInit<Self> {
        // INVARIANT: There is no buffer in the queue yet.
        pin_init!(Self {
            skbs <- SkBuffQueue::new(),
        })
    }

    /// Makes a reference to a queue that C code owns.
    ///
    /// # Safety
    ///
    /// `ptr` must meet the requirements of [`SkBuffQueue::from_raw`]. Each buffer in the queue must
    /// be a packet: its head is not shared and begins with the header, and its control block is a
    /// `struct virtio_vsock_skb_cb`.
    pub(super) unsafe fn from_raw<'a>(ptr: *mut bindings::sk_buff_head) -> Pin<&'a mut Self> {
        // INVARIANT: By the safety requirements each buffer in the queue is a packet.
        // SAFETY: By the safety requirements the queue is initialised and nobody else uses it.
        // `Self` is a transparent wrapper of `SkBuffQueue`, and so of `struct sk_buff_head`.
        let queue = unsafe { &mut *ptr.cast::<Self>() };
        // SAFETY: C code does not move the queue, and Rust code cannot move it through a pinned
        // reference.
        unsafe { Pin::new_unchecked(queue) }
    }

    /// Removes the first packet and returns it, or [`None`] if the queue is empty.
    pub(super) fn pop_front(self: Pin<&mut Self>) -> Option<Packet> {
        // INVARIANT: By the type invariant the buffer is a packet.
        self.project().skbs.pop_front().map(Packet)
    }

    /// Removes the last packet and returns it, or [`None`] if the queue is empty.
    pub(super) fn pop_back(self: Pin<&mut Self>) -> Option<Packet> {
        // INVARIANT: By the type invariant the buffer is a packet.
        self.project().skbs.pop_back().map(Packet)
    }

    /// Inserts a packet before all others.
    pub(super) fn push_front(self: Pin<&mut Self>, packet: Packet) {
        // INVARIANT: The buffer is a packet by the invariant of `Packet`.
        self.project().skbs.push_front(packet.into_skb());
    }

    /// Appends a packet after all others.
    pub(super) fn push_back(self: Pin<&mut Self>, packet: Packet) {
        // INVARIANT: The buffer is a packet by the invariant of `Packet`.
        self.project().skbs.push_back(packet.into_skb());
    }
}

/// The header of a packet.
#[derive(Clone, Copy)]
pub(super) struct Header(pub(super) bindings::virtio_vsock_hdr);

impl Header {
    /// The size of a header, in bytes.
    pub(super) const SIZE: u32 = size_of::<bindings::virtio_vsock_hdr>() as u32;

    /// Returns the length in the header, in bytes. This is the credit that a received packet holds.
    ///
    /// The data can have another length: the owner may have read a part of it, and a program can
    /// make a packet longer or shorter.
    pub(super) fn len(&self) -> u32 {
        u32::from_le(self.0.len)
    }

    /// Returns the flags [`EOM`] and [`EOR`] of the packet.
    pub(super) fn end(&self) -> u32 {
        u32::from_le(self.0.flags) & (EOM | EOR)
    }

    /// Returns whether the packet is the last one of a record.
    pub(super) fn ends_record(&self) -> bool {
        self.end() & EOM != 0
    }

    /// Returns the header with the flags `end` added. `end` may have the flags [`EOM`] and [`EOR`].
    pub(super) fn with_end(mut self, end: u32) -> Self {
        self.0.flags |= end.to_le();
        self
    }

    /// Returns the header of this packet after the packet with the header `next` was appended.
    pub(super) fn joined(mut self, next: Header) -> Self {
        self.0.len = self.len().wrapping_add(next.len()).to_le();
        self.with_end(next.end())
    }
}
