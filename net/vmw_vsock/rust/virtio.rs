// SPDX-License-Identifier: GPL-2.0

//! A virtio vsock socket: its receive queue, and the credit that the two sides give each other.
//!
//! C header: [`include/linux/virtio_vsock.h`](srctree/include/linux/virtio_vsock.h)

use kernel::{
    bindings,
    error::to_result,
    net::{
        skbuff::{
            SkBuff,
            SkBuffOwner,
            SkBuffQueue,
            SkBuffSlice, //
        },
        sock::{
            Sock,
            SockType, //
        },
    },
    prelude::*,
    sync::{
        aref::ARef,
        atomic::{
            atomic_load,
            Relaxed, //
        },
        SpinLockBh,
        SpinLockBhGuard, //
    },
};

use core::{
    mem::{
        offset_of,
        ManuallyDrop, //
    },
    ptr::NonNull, //
};

use pin_init::stack_pin_init;

mod egress;

/// The flag of a packet that ends a record.
const EOM: u32 = bindings::virtio_vsock_rw_VIRTIO_VSOCK_SEQ_EOM;
/// The flag of a packet that ends a record which was sent with `MSG_EOR`.
const EOR: u32 = bindings::virtio_vsock_rw_VIRTIO_VSOCK_SEQ_EOR;

/// The most bytes that one packet carries.
const MAX_PACKET: u32 = bindings::VIRTIO_VSOCK_MAX_PKT_BUF_SIZE;

const _: () = assert!(size_of::<bindings::vsock_sock>() == bindings::SIZEOF_VSOCK_SOCK);
const _: () =
    assert!(size_of::<bindings::virtio_vsock_sock>() == bindings::SIZEOF_VIRTIO_VSOCK_SOCK);
// The one is found by the address of the other.
const _: () = assert!(offset_of!(bindings::virtio_transport, transport) == 0);
const _: () = assert!(offset_of!(bindings::vsock_sock, sk) == 0);

/// A vsock socket with a virtio transport that is or was connected, and in a sockmap.
///
/// No lock is held for it: such a socket keeps its transport until it is freed, as `connect()` is
/// refused (`keeps_transport`).
///
/// # Invariants
///
/// `vsk` is a live socket, `sk` its beginning, `transport` its transport, which is a virtio one,
/// and `vvs` its transport state. The last two stay what they are during `'a`.
#[derive(Clone, Copy)]
pub(crate) struct VirtioSock<'a> {
    sk: &'a Sock,
    vsk: NonNull<bindings::vsock_sock>,
    vvs: NonNull<bindings::virtio_vsock_sock>,
    transport: NonNull<bindings::virtio_transport>,
}

/// A [`VirtioSock`] that the receive path has locked.
///
/// # Invariants
///
/// The socket lock is held during `'a`.
pub(crate) struct VirtioRef<'a>(VirtioSock<'a>);

/// The part of the transport state that `tx_lock` protects.
///
/// # Invariants
///
/// `vvs` is valid and its `tx_lock` is the one that `_guard` holds.
struct TxState<'a> {
    vvs: NonNull<bindings::virtio_vsock_sock>,
    _guard: SpinLockBhGuard<'a, ()>,
}

/// The part of the transport state that `rx_lock` protects.
///
/// # Invariants
///
/// `vvs` is valid and its `rx_lock` is the one that `_guard` holds.
struct RxState<'a> {
    vvs: NonNull<bindings::virtio_vsock_sock>,
    _guard: SpinLockBhGuard<'a, ()>,
}

/// A packet as it is in a receive queue.
///
/// # Invariants
///
/// The head of the buffer is not shared and begins with the header of the packet, in front of the
/// data; the control block is the transport's.
struct Packet(SkBuff);

impl Packet {
    /// # Safety
    ///
    /// `skb` comes from the receive queue of a virtio transport, or was a [`Packet`], and was not
    /// changed since.
    unsafe fn from_skb(skb: SkBuff) -> Self {
        // INVARIANT: By the safety requirements.
        Self(skb)
    }

    /// Makes a packet of a buffer that has lost its header and its control block. May sleep.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] if there was no room for the header, and none could be made.
    fn restore(mut skb: SkBuff, header: Header) -> Result<Self> {
        skb.ensure_headroom(Header::SIZE)?;
        // SAFETY: The room for the header is there, in a head that is not shared.
        let mut packet = unsafe { Self::new(skb, header) };
        packet.set_judged();
        Ok(packet)
    }

    /// Makes a packet of a buffer with room for the header. Does not sleep.
    ///
    /// # Safety
    ///
    /// The head of the buffer is not shared, and has [`Header::SIZE`] bytes before the data.
    unsafe fn new(skb: SkBuff, header: Header) -> Self {
        // INVARIANT: By the safety requirements the head is as it must be; what it and the control
        // block hold is written next.
        let mut packet = Self(skb);
        packet.set_header(header);
        packet.set_cb(Default::default());
        packet
    }

    fn header(&self) -> Header {
        // SAFETY: The buffer is valid.
        let head = unsafe { (*self.0.as_raw()).head };
        // SAFETY: By the type invariant the header is there; it is packed, so it is copied.
        Header(unsafe { head.cast::<bindings::virtio_vsock_hdr>().read_unaligned() })
    }

    fn set_header(&mut self, header: Header) {
        // SAFETY: The buffer is valid.
        let head = unsafe { (*self.0.as_raw()).head };
        // SAFETY: By the type invariant the header is there and not shared.
        unsafe {
            head.cast::<bindings::virtio_vsock_hdr>()
                .write_unaligned(header.0)
        };
    }

    fn set_judged(&mut self) {
        let cb = bindings::virtio_vsock_skb_cb {
            judged: true,
            ..self.cb()
        };
        self.set_cb(cb);
    }

    fn set_cb(&mut self, cb: bindings::virtio_vsock_skb_cb) {
        // SAFETY: The buffer is valid and ours alone; the control block is aligned for pointers and
        // larger than what is written.
        unsafe {
            (&raw mut (*self.0.as_raw()).cb)
                .cast::<bindings::virtio_vsock_skb_cb>()
                .write(cb)
        };
    }

    fn cb(&self) -> bindings::virtio_vsock_skb_cb {
        // SAFETY: By the type invariant the control block is the transport's.
        unsafe {
            (&raw const (*self.0.as_raw()).cb)
                .cast::<bindings::virtio_vsock_skb_cb>()
                .read()
        }
    }
}

/// The header of a packet.
#[derive(Clone, Copy)]
struct Header(bindings::virtio_vsock_hdr);

impl Header {
    /// In bytes.
    const SIZE: u32 = size_of::<bindings::virtio_vsock_hdr>() as u32;

    /// The bytes of credit that the packet holds, which is its length when it was received.
    fn len(&self) -> u32 {
        u32::from_le(self.0.len)
    }

    /// Which of [`EOM`] and [`EOR`] it has.
    fn end(&self) -> u32 {
        u32::from_le(self.0.flags) & (EOM | EOR)
    }

    fn ends_record(&self) -> bool {
        self.end() & EOM != 0
    }

    fn with_end(mut self, end: u32) -> Self {
        self.0.flags |= end.to_le();
        self
    }

    /// That of a packet to which the one with `next` was appended.
    fn joined(mut self, next: Header) -> Self {
        self.0.len = self.len().wrapping_add(next.len()).to_le();
        self.with_end(next.end())
    }
}

/// When a peer is to be told about space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum News {
    No,
    Now,
    /// After 10 ms, if it is not out of date by then. At full speed a buffer goes through in less.
    Later,
}

/// What a socket counts of its receive queue, in bytes, modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counters {
    /// What the owner can read.
    rx_bytes: u32,
    /// The credit that the packets hold, in the queue or on their way to the target of a redirect.
    buf_used: u32,
    /// The part of that which is on its way.
    lent: u32,
    /// The credit that the peer got back, ever.
    fwd_cnt: u32,
}

impl Counters {
    /// After a packet with `unread` bytes left the queue. It can still hold credit.
    fn without(self, unread: u32) -> Self {
        Self {
            rx_bytes: self.rx_bytes.wrapping_sub(unread),
            ..self
        }
    }

    /// After a packet took its `credit` out of the queue.
    fn lent(self, credit: u32) -> Self {
        Self {
            lent: self.lent.wrapping_add(credit),
            ..self
        }
    }

    /// After a packet came back to the queue with its `credit`.
    fn kept(self, credit: u32) -> Self {
        Self {
            lent: self.lent.wrapping_sub(credit),
            ..self
        }
    }

    /// After a packet that was not in the queue gave its `credit` back.
    fn returned(self, credit: u32) -> Self {
        Self {
            buf_used: self.buf_used.wrapping_sub(credit),
            fwd_cnt: self.fwd_cnt.wrapping_add(credit),
            ..self.kept(credit)
        }
    }

    /// When the peer is to be told: as when the owner receives, if it does not know of most of the
    /// space, and of records always, as one may need all of it.
    ///
    /// Nor must it be left without space for another packet, or for what the owner waits for, who
    /// may not read before and so does not tell it. What is on its way will tell it when it comes
    /// back, and soon as a rule; but a target that does not read can keep it.
    ///
    /// `last_fwd_cnt` is what the peer knows, `rcvlowat` how many bytes the owner waits for.
    fn news(self, last_fwd_cnt: u32, buf_alloc: u32, rcvlowat: u32, records: bool) -> News {
        let unknown = self.fwd_cnt.wrapping_sub(last_fwd_cnt);
        let known = buf_alloc.saturating_sub(unknown);
        let wanted = MAX_PACKET.max(rcvlowat.saturating_sub(self.rx_bytes));
        if unknown == 0 {
            News::No
        } else if records || known < MAX_PACKET {
            News::Now
        } else if known.saturating_sub(self.buf_used) >= wanted {
            News::No
        } else if self.lent == 0 {
            News::Now
        } else {
            News::Later
        }
    }

    /// After the verdict left `len` bytes of a packet with `unread` bytes in the queue, whatever
    /// credit the packet holds.
    fn resized(self, unread: u32, len: u32) -> Self {
        Self {
            rx_bytes: self.rx_bytes.wrapping_sub(unread).wrapping_add(len),
            ..self
        }
    }
}

/// The credit that a packet holds which has left the receive queue, in bytes.
///
/// The packet owns it while it is on its way to the target of a redirect. Dropping it gives it back
/// to the peer, and tells the peer when that is of use: without the socket lock, in any context but
/// a hard interrupt.
///
/// # Invariants
///
/// `sk` is good for [`VirtioSock::from_sk`], and its counters include `bytes`.
pub(crate) struct Credit {
    sk: ARef<Sock>,
    bytes: u32,
}

impl Credit {
    /// Makes that of a packet which leaves the receive queue, and is still counted there.
    fn lend(vsk: &VirtioSock<'_>, bytes: u32) -> Self {
        let rx = vsk.lock_rx();
        let counters = rx.counters().lent(bytes);
        vsk.account(rx, counters);
        // INVARIANT: The counters of the socket include the packet. A socket whose packets are
        // judged has been in a map, and keeps its transport (`keeps_transport`).
        Self {
            sk: vsk.sk.into(),
            bytes,
        }
    }

    /// Leaves the credit with its packet, which goes back to the receive queue. Returns how many
    /// bytes it was, which are still counted as lent.
    fn stay(self) -> u32 {
        let bytes = self.bytes;
        let (sk, _) = self.into_parts();
        drop(sk);
        bytes
    }
}

impl SkBuffOwner for Credit {
    fn into_parts(self) -> (ARef<Sock>, usize) {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, nor dropped.
        (unsafe { core::ptr::read(&this.sk) }, this.bytes as usize)
    }

    unsafe fn from_parts(sk: ARef<Sock>, bytes: usize) -> Self {
        // INVARIANT: The parts are those of a value that was taken apart, and not dropped.
        Self {
            sk,
            bytes: bytes as u32,
        }
    }
}

impl Drop for Credit {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, and `self.sk` holds a reference.
        let Ok(vsk) = (unsafe { VirtioSock::from_sk(&self.sk) }) else {
            return;
        };
        let rx = vsk.lock_rx();
        let counters = rx.counters().returned(self.bytes);
        vsk.account(rx, counters);
    }
}

/// The place in the receive queue that a packet has while the verdict judges it.
///
/// Dropping it takes the packet out of the queue.
pub(crate) struct Place<'a> {
    vsk: &'a VirtioRef<'a>,
    header: Header,
    unread: u32,
    /// Of a packet that could not take it along.
    credit: Option<Credit>,
}

impl<'a> Place<'a> {
    /// Makes the place of a packet that is not in the receive queue any more, but still counted as
    /// if it were, with `unread` bytes.
    fn new(vsk: &'a VirtioRef<'a>, header: Header, unread: u32) -> Self {
        Self {
            vsk,
            header,
            unread,
            credit: Some(Credit::lend(&vsk.0, header.len())),
        }
    }
}

/// What became of a packet that the verdict passed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The owner can read it.
    Yes,
    /// It is gone: the verdict left no bytes of it, and it is no record.
    Empty,
    /// It is gone: there was no memory for its header.
    Lost,
}

impl Place<'_> {
    /// Puts the packet back into the receive queue, for the owner to read.
    ///
    /// It holds its credit on, also if the verdict made it longer or shorter. May sleep.
    ///
    /// # Safety
    ///
    /// `skb` is the packet of this place, and has the owner that it had when it was taken.
    pub(crate) unsafe fn keep(mut self, mut skb: SkBuff) -> Kept {
        let len = skb.len();
        if len == 0 && !self.header.ends_record() {
            return Kept::Empty;
        }
        let credit = self.credit.take().or_else(|| {
            // SAFETY: By the safety requirements, a packet that took its credit along has it.
            unsafe { skb.take_owner() }
        });
        let Ok(packet) = Packet::restore(skb, self.header) else {
            return Kept::Lost;
        };
        let credit = credit.map_or(0, Credit::stay);

        let this = ManuallyDrop::new(self);
        let mut rx = this.vsk.lock_rx();
        rx.push_back(packet);
        let counters = rx.counters().resized(this.unread, len).kept(credit);
        // It can be the last one that was on its way, or be in the way of others.
        this.vsk.0.account(rx, counters);
        Kept::Yes
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut rx = self.vsk.lock_rx();
        let counters = rx.counters().without(self.unread);
        rx.set_counters(counters);
        if self.header.ends_record() {
            rx.lose_record();
        }
    }
}

/// A packet that no verdict has seen, or all packets of a record.
pub(crate) struct Unjudged<'a> {
    skb: SkBuff,
    place: Place<'a>,
}

/// The packets that no verdict has seen, while it goes through them.
///
/// They are accounted for as if they were in the receive queue. Dropping it puts back what is left.
///
/// # Invariants
///
/// The packets come from the end of the receive queue of `vsk`, in order, and are unchanged.
#[pin_data(PinnedDrop)]
pub(crate) struct UnjudgedQueue<'a> {
    vsk: &'a VirtioRef<'a>,
    #[pin]
    queue: SkBuffQueue,
}

impl<'a> UnjudgedQueue<'a> {
    fn fill(self: Pin<&mut Self>) {
        let mut this = self.project();
        let mut rx = this.vsk.lock_rx();
        if this.vsk.0.is_record_socket() && rx.is_unfinished() {
            return;
        }
        while let Some(packet) = rx.pop_back() {
            if packet.cb().judged {
                rx.push_back(packet);
                break;
            }
            // INVARIANT: The packet comes before those that are there.
            this.queue.as_mut().push_front(packet.0);
        }
    }

    fn pop_front(self: Pin<&mut Self>) -> Option<Packet> {
        let skb = self.project().queue.pop_front()?;
        // SAFETY: By the type invariant.
        Some(unsafe { Packet::from_skb(skb) })
    }

    /// Takes the next packet for the verdict, without what the owner has read of it, or the next
    /// record.
    ///
    /// If there is no memory to take that off, the packet stays the owner's, who has begun to read
    /// it, and the one behind it is next. Does not sleep.
    ///
    /// # Errors
    ///
    /// [`EMSGSIZE`] or [`EINVAL`] if a record could not be made one buffer, and is gone.
    pub(crate) fn next(mut self: Pin<&mut Self>) -> Option<Result<Unjudged<'a>>> {
        let vsk = self.vsk;
        loop {
            let mut packet = if vsk.0.is_record_socket() {
                match self.as_mut().pop_record()? {
                    Ok(packet) => packet,
                    Err(err) => return Some(Err(err)),
                }
            } else {
                self.as_mut().pop_front()?
            };
            let header = packet.header();
            let offset = packet.cb().offset;
            if packet.0.pull(offset).is_err() {
                packet.set_judged();
                vsk.lock_rx().push_back(packet);
                continue;
            }
            let Packet(mut skb) = packet;
            let mut place = Place::new(vsk, header, skb.len());
            if let Some(credit) = place.credit.take() {
                // SAFETY: The verdict, the backlog of a psock and the target of a redirect free a
                // packet, or give it to another socket, outside of hard interrupts and without the
                // locks of this socket.
                place.credit = unsafe { skb.set_owner(credit) }.err();
            }
            return Some(Ok(Unjudged { skb, place }));
        }
    }

    /// Takes the packets of the next record as one, so that a verdict is about a whole record.
    ///
    /// A record whose end has not come yet, which is the last then, goes back to the receive queue.
    fn pop_record(mut self: Pin<&mut Self>) -> Option<Result<Packet>> {
        let mut record = self.as_mut().pop_front()?;
        let mut header = record.header();
        stack_pin_init!(let rest = SkBuffQueue::new());
        let mut len = record.0.len();
        while !header.ends_record() {
            let Some(packet) = self.as_mut().pop_front() else {
                let mut rx = self.vsk.lock_rx();
                rx.push_back(record);
                rx.append(rest);
                rx.set_unfinished();
                return None;
            };
            header = header.joined(packet.header());
            len = len.wrapping_add(packet.0.len());
            rest.as_mut().push_back(packet.0);
        }
        // SAFETY: The head of a packet is not shared, and one that was received is charged to
        // nobody.
        if let Err(err) = unsafe { record.0.append_frags(rest) } {
            drop(Place::new(self.vsk, header, len));
            return Some(Err(err));
        }
        record.set_header(header);
        Some(Ok(record))
    }
}

#[pinned_drop]
impl PinnedDrop for UnjudgedQueue<'_> {
    fn drop(self: Pin<&mut Self>) {
        let this = self.project();
        this.vsk.lock_rx().append(this.queue);
    }
}

impl<'a> Unjudged<'a> {
    /// Returns the packet, without what the owner has read of it, and its place in the queue.
    pub(crate) fn into_parts(self) -> (SkBuff, Place<'a>) {
        (self.skb, self.place)
    }
}

impl<'a> VirtioSock<'a> {
    /// Makes a reference of a socket.
    ///
    /// # Errors
    ///
    /// [`ENODEV`] if the socket has no transport.
    ///
    /// # Safety
    ///
    /// `sk` must be a vsock socket with a virtio transport that stays: the caller holds the socket
    /// lock during `'a`, or the socket is connected, or was, and refuses to connect again
    /// (`keeps_transport`).
    unsafe fn from_sk(sk: &'a Sock) -> Result<Self> {
        let vsk = sk.as_raw().cast::<bindings::vsock_sock>();
        // SAFETY: All sockets of the family are allocated as a `struct vsock_sock`. By the safety
        // requirements nobody writes the field.
        let vvs = unsafe { (*vsk).trans };
        // SAFETY: As above.
        let transport = unsafe { (*vsk).transport };
        // INVARIANT: By the safety requirements. The transport begins a `struct virtio_transport`.
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
    /// `vsk` must point to a vsock socket that is good for [`VirtioSock::from_sk`]. The caller
    /// holds a reference to it during `'a`.
    pub(crate) unsafe fn from_raw(vsk: *mut bindings::vsock_sock) -> Result<Self> {
        // SAFETY: The socket is live, and the caller's reference keeps it during `'a`.
        let sk = unsafe { Sock::from_raw(&raw mut (*vsk).sk) };
        // SAFETY: By the safety requirements.
        unsafe { Self::from_sk(sk) }
    }

    /// Whether the peer can send, so that it is of use to tell it about space. Of a connection that
    /// has ended it is not: the peer may have made a new one with the same addresses.
    ///
    /// C function: `virtio_transport_peer_sends()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    fn peer_sends(&self) -> bool {
        // SAFETY: The socket is live. C stores the word as one, marked or not.
        let peer_shutdown =
            unsafe { atomic_load(&raw mut (*self.vsk.as_ptr()).peer_shutdown, Relaxed) };
        self.sk.is_established()
            && !self.sk.is_recv_shutdown()
            && peer_shutdown & bindings::SEND_SHUTDOWN == 0
    }

    /// Sets the counters, and tells the peer if that is of use.
    ///
    /// Does not sleep; not in hard interrupts, perhaps with spinlocks held.
    fn account(&self, mut rx: RxState<'_>, counters: Counters) {
        rx.set_counters(counters);
        let news = counters.news(
            rx.last_fwd_cnt(),
            rx.buf_alloc(),
            self.sk.rcvlowat(),
            self.is_record_socket(),
        );
        drop(rx);

        match news {
            News::No => {}
            _ if !self.peer_sends() => {}
            News::Now => {
                // A guest that is stopped cannot be reached for a while.
                if let Err(ENOMEM | EHOSTUNREACH) = self.send_credit_update() {
                    self.send_credit_update_later(true);
                }
            }
            News::Later => self.send_credit_update_later(false),
        }
    }

    fn is_record_socket(&self) -> bool {
        self.sk.sk_type() == SockType::SeqPacket
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
}

impl<'a> VirtioRef<'a> {
    /// Makes a reference of a socket that is locked.
    ///
    /// # Safety
    ///
    /// The caller holds the socket lock during `'a`, and may sleep.
    pub(crate) unsafe fn new(vsk: VirtioSock<'a>) -> Self {
        // INVARIANT: By the safety requirements.
        Self(vsk)
    }

    /// Returns the network layer's view of the socket.
    pub(crate) fn sk(&self) -> &'a Sock {
        self.0.sk
    }

    fn lock_rx(&self) -> RxState<'_> {
        self.0.lock_rx()
    }

    /// Takes all packets that no verdict has seen out of the receive queue. Does not sleep.
    pub(crate) fn take_unjudged(&self) -> impl PinInit<UnjudgedQueue<'_>> {
        // INVARIANT: There is no packet.
        pin_init!(UnjudgedQueue {
            vsk: self,
            queue <- SkBuffQueue::new(),
        })
        .pin_chain(|queue| {
            queue.fill();
            Ok(())
        })
    }

    /// Returns whether the owner can read: as much as it waits for (`SO_RCVLOWAT`), or a record.
    ///
    /// C function: `vsock_data_ready()` in
    /// [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c) asks the first. A record is
    /// asked for too, as the verdict can leave one without bytes.
    pub(crate) fn is_readable(&self) -> bool {
        let rx = self.lock_rx();
        rx.counters().rx_bytes >= self.sk().rcvlowat()
            || (self.0.is_record_socket() && rx.msg_count() > 0)
    }

    /// Resets the connection, as a packet of it is lost. May sleep.
    ///
    /// The owner can read what came before, and gets [`ENOBUFS`] then.
    ///
    /// C function: `virtio_transport_lost_data()` in
    /// [`net/vmw_vsock/virtio_transport_common.c`](srctree/net/vmw_vsock/virtio_transport_common.c)
    pub(crate) fn lost_data(&self) {
        // SAFETY: By the type invariant, the socket is live and locked; no spinlock is held, as
        // `RxState` does not leave this file. Without a packet there is none to answer.
        unsafe { bindings::virtio_transport_lost_data(self.0.vsk.as_ptr(), core::ptr::null_mut()) };
    }
}

impl RxState<'_> {
    fn queue(&mut self) -> Pin<&mut SkBuffQueue> {
        // SAFETY: By the type invariant the queue is valid and we hold the lock that protects it.
        // Received packets are not shared.
        unsafe { SkBuffQueue::from_raw(&raw mut (*self.vvs.as_ptr()).rx_queue) }
    }

    fn pop_back(&mut self) -> Option<Packet> {
        let skb = self.queue().pop_back()?;
        // SAFETY: It was in the receive queue until just now.
        Some(unsafe { Packet::from_skb(skb) })
    }

    fn push_back(&mut self, packet: Packet) {
        self.queue().push_back(packet.0);
    }

    /// Whether the last packet belongs to a record whose end was looked for and has not come since.
    fn is_unfinished(&mut self) -> bool {
        let Some(last) = self.pop_back() else {
            return false;
        };
        let mut is_unfinished = false;
        if !last.header().ends_record() {
            is_unfinished = last.cb().unfinished;
            // The last can be new.
            if let Some(before) = self.pop_back() {
                is_unfinished |= before.cb().unfinished && !before.header().ends_record();
                self.push_back(before);
            }
        }
        self.push_back(last);
        is_unfinished
    }

    /// Marks the last packet for [`Self::is_unfinished`].
    fn set_unfinished(&mut self) {
        if let Some(mut last) = self.pop_back() {
            let cb = bindings::virtio_vsock_skb_cb {
                unfinished: true,
                ..last.cb()
            };
            last.set_cb(cb);
            self.push_back(last);
        }
    }

    /// Puts packets of the receive queue back at its end.
    fn append(&mut self, mut packets: Pin<&mut SkBuffQueue>) {
        while let Some(skb) = packets.as_mut().pop_front() {
            self.queue().push_back(skb);
        }
    }

    fn counters(&self) -> Counters {
        let vvs = self.vvs.as_ptr();
        Counters {
            // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the
            // field, is held.
            rx_bytes: unsafe { (*vvs).rx_bytes },
            // SAFETY: As above.
            buf_used: unsafe { (*vvs).buf_used },
            // SAFETY: As above.
            lent: unsafe { (*vvs).lent },
            // SAFETY: As above.
            fwd_cnt: unsafe { (*vvs).fwd_cnt },
        }
    }

    /// What the peer knows `fwd_cnt` to be.
    fn last_fwd_cnt(&self) -> u32 {
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        unsafe { (*self.vvs.as_ptr()).last_fwd_cnt }
    }

    /// The size of the receive buffer, in bytes.
    fn buf_alloc(&self) -> u32 {
        // SAFETY: By the type invariant `vvs` is valid; C writes the word as one.
        unsafe { atomic_load(&raw mut (*self.vvs.as_ptr()).buf_alloc, Relaxed) }
    }

    /// The number of whole records.
    fn msg_count(&self) -> u32 {
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        unsafe { (*self.vvs.as_ptr()).msg_count }
    }

    fn set_counters(&mut self, counters: Counters) {
        let vvs = self.vvs.as_ptr();
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        unsafe { (*vvs).rx_bytes = counters.rx_bytes };
        // SAFETY: As above.
        unsafe { (*vvs).buf_used = counters.buf_used };
        // SAFETY: As above.
        unsafe { (*vvs).lent = counters.lent };
        // SAFETY: As above.
        unsafe { (*vvs).fwd_cnt = counters.fwd_cnt };
    }

    /// Accounts for a record that left the queue unread.
    fn lose_record(&mut self) {
        // SAFETY: By the type invariant `vvs` is valid, and `rx_lock`, which protects the field, is
        // held.
        let msg_count = unsafe { &mut (*self.vvs.as_ptr()).msg_count };
        *msg_count = msg_count.wrapping_sub(1);
    }
}

#[kunit_tests(vsock_sockmap_credit)]
mod tests {
    use super::*;

    const LENS: [u32; 6] = [0, 1, 4096, 65_536, 1 << 31, u32::MAX];

    const EMPTY: Counters = Counters {
        rx_bytes: 0,
        buf_used: 0,
        lent: 0,
        fwd_cnt: 0,
    };

    /// After a packet of `len` bytes came in, of which the owner has read `read`.
    fn received(len: u32, read: u32) -> Counters {
        Counters {
            rx_bytes: len.wrapping_sub(read),
            buf_used: len,
            ..EMPTY
        }
    }

    /// Calls `check` with the length of a packet, and how much of it was read before the verdict.
    fn for_each_packet(check: impl Fn(u32, u32)) {
        for len in LENS {
            for read in LENS {
                if read <= len {
                    check(len, read);
                }
            }
        }
    }

    #[test]
    fn taken_packet_gives_all_its_credit_back() {
        for_each_packet(|len, read| {
            let counters = received(len, read)
                .lent(len)
                .without(len - read)
                .returned(len);
            let want = Counters {
                fwd_cnt: len,
                ..EMPTY
            };
            assert_eq!(counters, want);
        });
    }

    #[test]
    fn passed_packet_changes_nothing() {
        for_each_packet(|len, read| {
            let counters = received(len, read);
            let passed = counters.lent(len).resized(len - read, len - read).kept(len);
            assert_eq!(passed, counters);
        });
    }

    /// However long the verdict made it, its credit is what the peer sent.
    #[test]
    fn changed_packet_gives_its_credit_back_when_it_is_read() {
        for_each_packet(|len, read| {
            for changed in LENS {
                let lent = received(len, read).lent(len);
                let passed = lent.resized(len - read, changed).kept(len);
                let want = Counters {
                    rx_bytes: changed,
                    buf_used: len,
                    ..EMPTY
                };
                assert_eq!(passed, want);
            }
        });
    }

    #[test]
    fn redirected_packet_holds_its_credit_until_it_is_consumed() {
        for_each_packet(|len, read| {
            let redirected = received(len, read).lent(len).without(len - read);
            let want = Counters {
                buf_used: len,
                lent: len,
                ..EMPTY
            };
            assert_eq!(redirected, want);
        });
    }

    /// What the peer can still send, with what it knows.
    fn space(counters: Counters, last_fwd_cnt: u32, buf_alloc: u32) -> u32 {
        let unknown = counters.fwd_cnt.wrapping_sub(last_fwd_cnt);
        buf_alloc.saturating_sub(unknown.saturating_add(counters.buf_used))
    }

    /// Calls `check` with counters as they can be after a packet came back, what the peer knows,
    /// and the size of the buffer.
    fn for_each_return(check: impl Fn(Counters, u32, u32)) {
        for buf_alloc in [4096, MAX_PACKET, 4 * MAX_PACKET] {
            let parts = [0, 1, buf_alloc / 4, buf_alloc / 2];
            let all = parts.map(|a| parts.map(|b| parts.map(|c| [a, b, c])));
            for [buf_used, lent, unknown] in all.as_flattened().as_flattened() {
                let lent = *lent.min(buf_used);
                for last_fwd_cnt in [0, u32::MAX] {
                    let counters = Counters {
                        rx_bytes: buf_used - lent,
                        buf_used: *buf_used,
                        lent,
                        fwd_cnt: last_fwd_cnt.wrapping_add(*unknown),
                    };
                    check(counters, last_fwd_cnt, buf_alloc);
                }
            }
        }
    }

    #[test]
    fn peer_that_knows_all_is_not_told() {
        for_each_return(|counters, _, buf_alloc| {
            for records in [false, true] {
                let news = counters.news(counters.fwd_cnt, buf_alloc, 1, records);
                assert_eq!(news, News::No);
            }
        });
    }

    #[test]
    fn peer_that_may_wait_for_it_is_told() {
        for_each_return(|counters, last_fwd_cnt, buf_alloc| {
            for rcvlowat in [1, buf_alloc / 2, buf_alloc] {
                let news = counters.news(last_fwd_cnt, buf_alloc, rcvlowat, false);
                let space = space(counters, last_fwd_cnt, buf_alloc);
                let is_enough =
                    space >= MAX_PACKET && counters.rx_bytes.saturating_add(space) >= rcvlowat;
                if counters.fwd_cnt != last_fwd_cnt && !is_enough {
                    assert_ne!(news, News::No);
                    // Nothing that is on its way may come back and tell it.
                    assert!(news == News::Now || counters.lent != 0);
                }
            }
        });
    }

    #[test]
    fn peer_is_not_told_of_each_packet() {
        let buf_alloc = 4 * MAX_PACKET;
        let after = |fwd_cnt, buf_used, lent| Counters {
            rx_bytes: buf_used - lent,
            buf_used,
            lent,
            fwd_cnt,
        };
        let news = |counters: Counters| counters.news(0, buf_alloc, 1, false);
        // There is plenty of space that it knows of.
        assert_eq!(news(after(1, 0, 0)), News::No);
        assert_eq!(news(after(3 * MAX_PACKET, 0, 0)), News::No);
        assert_eq!(news(after(3 * MAX_PACKET + 1, 0, 0)), News::Now);
        // A sink that takes little at a time, from a buffer that is full, or that takes nothing.
        let full = after(MAX_PACKET, 3 * MAX_PACKET, 3 * MAX_PACKET);
        assert_eq!(news(full), News::Later);
        // What is left is the owner's, who need not read it.
        assert_eq!(news(after(MAX_PACKET, 3 * MAX_PACKET, 0)), News::Now);
        // A record can need all the space.
        assert_eq!(after(1, 0, 0).news(0, buf_alloc, 1, true), News::Now);
    }

    #[test]
    fn record_is_as_long_as_its_packets() {
        let header = |len: u32, flags: u32| {
            Header(bindings::virtio_vsock_hdr {
                len: len.to_le(),
                flags: flags.to_le(),
                ..Default::default()
            })
        };
        let record = header(MAX_PACKET, 0).joined(header(MAX_PACKET, 0));
        assert!(!record.ends_record());
        let record = record.joined(header(1, EOM | EOR));
        assert_eq!(record.len(), 2 * MAX_PACKET + 1);
        assert_eq!(record.end(), EOM | EOR);
    }

    #[test]
    fn header_keeps_its_flags() {
        let header = Header(Default::default());
        assert!(!header.ends_record());
        let header = header.with_end(EOM | EOR);
        assert!(header.ends_record());
        assert_eq!(header.end(), EOM | EOR);
    }
}
