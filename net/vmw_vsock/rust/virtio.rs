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

use core::{
    mem::ManuallyDrop,
    ptr::NonNull, //
};

/// The flag of a packet that ends a record.
const EOM: u32 = bindings::virtio_vsock_rw_VIRTIO_VSOCK_SEQ_EOM;
/// The flag of a packet that ends a record which was sent with `MSG_EOR`.
const EOR: u32 = bindings::virtio_vsock_rw_VIRTIO_VSOCK_SEQ_EOR;

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
    /// `skb` comes from the receive queue of a virtio transport, and was not changed since.
    unsafe fn from_skb(skb: SkBuff) -> Self {
        // INVARIANT: By the safety requirements.
        Self(skb)
    }

    /// Makes a packet of a buffer that has lost its header and its control block.
    ///
    /// # Errors
    ///
    /// [`ENOMEM`] if there was no room for the header, and none could be made.
    fn restore(mut skb: SkBuff, header: Header) -> Result<Self> {
        skb.ensure_headroom(Header::SIZE)?;
        // SAFETY: The buffer is valid and ours alone.
        let head = unsafe { (*skb.as_raw()).head };
        // SAFETY: The header has room in front of the data, and the head is not shared.
        unsafe {
            head.cast::<bindings::virtio_vsock_hdr>()
                .write_unaligned(header.0)
        };
        // INVARIANT: The header was written just now, and the control block is next.
        let mut packet = Self(skb);
        packet.set_cb(bindings::virtio_vsock_skb_cb {
            judged: true,
            ..Default::default()
        });
        Ok(packet)
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
}

/// What a socket counts of its receive queue, in bytes, modulo 2^32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counters {
    /// What the owner can read.
    rx_bytes: u32,
    /// The credit that the packets in the queue hold.
    buf_used: u32,
    /// The credit that the peer got back, ever.
    fwd_cnt: u32,
}

impl Counters {
    /// After a packet with `unread` bytes and `credit` bytes of credit left the queue.
    fn without(self, unread: u32, credit: u32) -> Self {
        Self {
            rx_bytes: self.rx_bytes.wrapping_sub(unread),
            buf_used: self.buf_used.wrapping_sub(credit),
            fwd_cnt: self.fwd_cnt.wrapping_add(credit),
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

/// The space in the receive queue that belongs to a packet while the verdict judges it.
///
/// Dropping it gives the space back to the peer, whom [`VirtioRef::send_credit_update`] tells.
pub(crate) struct Credit<'a> {
    vsk: &'a VirtioRef<'a>,
    header: Header,
    unread: u32,
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

impl Credit<'_> {
    /// Puts the packet back into the receive queue, for the owner to read.
    ///
    /// It holds its credit on, also if the verdict made it longer or shorter. May sleep.
    pub(crate) fn keep(self, skb: SkBuff) -> Kept {
        let len = skb.len();
        if len == 0 && !self.header.ends_record() {
            return Kept::Empty;
        }
        let Ok(packet) = Packet::restore(skb, self.header) else {
            return Kept::Lost;
        };

        let this = ManuallyDrop::new(self);
        let mut rx = this.vsk.lock_rx();
        let counters = rx.counters().resized(this.unread, len);
        rx.set_counters(counters);
        rx.push_back(packet);
        Kept::Yes
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        let mut rx = self.vsk.lock_rx();
        let counters = rx.counters().without(self.unread, self.header.len());
        rx.set_counters(counters);
        if self.header.ends_record() {
            rx.end_record(self.header.end());
        }
    }
}

/// A packet that no verdict has seen.
pub(crate) struct Unjudged<'a> {
    skb: SkBuff,
    credit: Credit<'a>,
}

/// The packets that no verdict has seen, while it goes through them.
///
/// # Invariants
///
/// The packets come from the end of the receive queue of one socket, in order, and are unchanged.
#[pin_data]
pub(crate) struct UnjudgedQueue {
    #[pin]
    queue: SkBuffQueue,
}

impl UnjudgedQueue {
    /// Makes an empty one, for [`VirtioRef::take_unjudged`] to fill.
    pub(crate) fn new() -> impl PinInit<Self> {
        // INVARIANT: There is no packet.
        pin_init!(Self {
            queue <- SkBuffQueue::new(),
        })
    }
}

impl<'a> Unjudged<'a> {
    /// Returns the packet, without what the owner has read of it, and the space that it takes.
    pub(crate) fn into_parts(self) -> (SkBuff, Credit<'a>) {
        (self.skb, self.credit)
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
    /// `vsk` must point to a vsock socket whose transport is a virtio one. The caller holds a
    /// reference to it and its socket lock during `'a`.
    pub(crate) unsafe fn from_raw(vsk: *mut bindings::vsock_sock) -> Result<Self> {
        let vsk = NonNull::new(vsk).ok_or(ENODEV)?;
        // SAFETY: The socket is live, and its lock keeps the transport as it is.
        let vvs = unsafe { (*vsk.as_ptr()).trans };
        // SAFETY: The socket is live, and the caller's reference keeps it during `'a`.
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

    /// Moves the packets that no verdict has seen from the end of the receive queue to `to`.
    ///
    /// They are still accounted for as if they were in the queue: [`Self::next`] has to be called
    /// for all of them. Does not sleep.
    pub(crate) fn take_unjudged(&self, to: Pin<&mut UnjudgedQueue>) {
        let mut to = to.project();
        let mut rx = self.lock_rx();
        while let Some(packet) = rx.pop_back() {
            if packet.cb().judged {
                rx.push_back(packet);
                break;
            }
            // INVARIANT: The packet comes before those that are there.
            to.queue.as_mut().push_front(packet.0);
        }
    }

    /// Takes the next packet for the verdict, without what the owner has read of it.
    ///
    /// If there is no memory to take that off, the packet stays the owner's, who has begun to read
    /// it, and the one behind it is next. Does not sleep.
    pub(crate) fn next(&self, from: Pin<&mut UnjudgedQueue>) -> Option<Unjudged<'_>> {
        let mut from = from.project();
        loop {
            let skb = from.queue.as_mut().pop_front()?;
            // SAFETY: By the invariant of the queue.
            let mut packet = unsafe { Packet::from_skb(skb) };
            let header = packet.header();
            let offset = packet.cb().offset;
            if packet.0.pull(offset).is_err() {
                packet.set_judged();
                self.lock_rx().push_back(packet);
                continue;
            }
            let Packet(skb) = packet;
            let credit = Credit {
                vsk: self,
                header,
                unread: skb.len(),
            };
            return Some(Unjudged { skb, credit });
        }
    }

    /// Returns whether the owner can read: as much as it waits for (`SO_RCVLOWAT`), or a record.
    ///
    /// C function: `vsock_data_ready()` in
    /// [`net/vmw_vsock/af_vsock.c`](srctree/net/vmw_vsock/af_vsock.c) asks the first. A record is
    /// asked for too, as the verdict can leave one without bytes.
    pub(crate) fn is_readable(&self) -> bool {
        let rx = self.lock_rx();
        rx.counters().rx_bytes >= self.sk.rcvlowat() || rx.msg_count() > 0
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
        unsafe { bindings::virtio_transport_lost_data(self.vsk.as_ptr(), core::ptr::null_mut()) };
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

    fn pop_back(&mut self) -> Option<Packet> {
        let skb = self.queue().pop_back()?;
        // SAFETY: It was in the receive queue until just now.
        Some(unsafe { Packet::from_skb(skb) })
    }

    fn push_back(&mut self, packet: Packet) {
        self.queue().push_back(packet.0);
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
            fwd_cnt: unsafe { (*vvs).fwd_cnt },
        }
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
        unsafe { (*vvs).fwd_cnt = counters.fwd_cnt };
    }

    /// Accounts for the end of a record whose last packet the verdict took.
    ///
    /// What it left of the record ends with the packet that is the last now, so that the owner can
    /// read it and the next record is not glued to it. If nothing is left, there is no record.
    fn end_record(&mut self, end: u32) {
        if let Some(mut last) = self.pop_back() {
            let header = last.header();
            let left = !header.ends_record();
            if left {
                last.set_header(header.with_end(end));
            }
            self.push_back(last);
            if left {
                return;
            }
        }
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
        fwd_cnt: 0,
    };

    /// After a packet of `len` bytes came in, of which the owner has read `read`.
    fn received(len: u32, read: u32) -> Counters {
        Counters {
            rx_bytes: len.wrapping_sub(read),
            buf_used: len,
            fwd_cnt: 0,
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
            let counters = received(len, read).without(len - read, len);
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
            assert_eq!(counters.resized(len - read, len - read), counters);
        });
    }

    /// However long the verdict made it, its credit is what the peer sent.
    #[test]
    fn changed_packet_gives_its_credit_back_when_it_is_read() {
        for_each_packet(|len, read| {
            for changed in LENS {
                let passed = received(len, read).resized(len - read, changed);
                assert_eq!(passed.rx_bytes, changed);
                assert_eq!(passed.buf_used, len);
                assert_eq!(passed.fwd_cnt, 0);

                let want = Counters {
                    fwd_cnt: len,
                    ..EMPTY
                };
                assert_eq!(passed.without(changed, len), want);
            }
        });
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
