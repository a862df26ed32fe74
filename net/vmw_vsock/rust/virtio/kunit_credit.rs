// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the receive credit: the counters, and the length of a record.

use kernel::prelude::*;

#[kunit_tests(vsock_sockmap_credit)]
mod tests {
    use super::super::{
        counters::{
            Counters,
            CreditUpdate, //
        },
        packet::{
            Header,
            EOM,
            EOR,
            MAX_PACKET, //
        },
    };
    use kernel::bindings;

    const LENS: [u32; 6] = [0, 1, 4096, 65_536, 1 << 31, u32::MAX];

    const EMPTY: Counters = Counters {
        rx_bytes: 0,
        buf_used: 0,
        redirected: 0,
        fwd_cnt: 0,
    };

    /// Returns the counters after a packet of `len` bytes arrived, of which the owner read `read`.
    fn received(len: u32, read: u32) -> Counters {
        Counters {
            rx_bytes: len.wrapping_sub(read),
            buf_used: len,
            ..EMPTY
        }
    }

    /// Calls `check` with the length of a packet, and the number of bytes read before the verdict.
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
                .redirected(len)
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
            let passed = counters
                .redirected(len)
                .resized(len - read, len - read)
                .requeued(len);
            assert_eq!(passed, counters);
        });
    }

    /// The credit of a packet is its length on arrival, even if the verdict changed its length.
    #[test]
    fn changed_packet_gives_its_credit_back_when_it_is_read() {
        for_each_packet(|len, read| {
            for changed in LENS {
                let taken = received(len, read).redirected(len);
                let passed = taken.resized(len - read, changed).requeued(len);
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
            let redirected = received(len, read).redirected(len).without(len - read);
            let want = Counters {
                buf_used: len,
                redirected: len,
                ..EMPTY
            };
            assert_eq!(redirected, want);
        });
    }

    /// Returns the number of bytes that the peer can still send, as far as it knows.
    fn available(counters: Counters, last_fwd_cnt: u32, buf_alloc: u32) -> u32 {
        let unknown = counters.fwd_cnt.wrapping_sub(last_fwd_cnt);
        buf_alloc.saturating_sub(unknown.saturating_add(counters.buf_used))
    }

    /// Calls `check` with counters that can occur after a packet gave its credit back, with the
    /// `fwd_cnt` that the peer knows, and with the size of the buffer.
    fn for_each_return(check: impl Fn(Counters, u32, u32)) {
        for buf_alloc in [4096, MAX_PACKET, 4 * MAX_PACKET] {
            let parts = [0, 1, buf_alloc / 4, buf_alloc / 2];
            let all = parts.map(|a| parts.map(|b| parts.map(|c| [a, b, c])));
            for [buf_used, redirected, unknown] in all.as_flattened().as_flattened() {
                let redirected = *redirected.min(buf_used);
                for last_fwd_cnt in [0, u32::MAX] {
                    let counters = Counters {
                        rx_bytes: buf_used - redirected,
                        buf_used: *buf_used,
                        redirected,
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
                let update = counters.credit_update(counters.fwd_cnt, buf_alloc, 1, records);
                assert_eq!(update, CreditUpdate::No);
            }
        });
    }

    #[test]
    fn peer_that_may_wait_for_it_is_told() {
        for_each_return(|counters, last_fwd_cnt, buf_alloc| {
            for rcvlowat in [1, buf_alloc / 2, buf_alloc] {
                let update = counters.credit_update(last_fwd_cnt, buf_alloc, rcvlowat, false);
                let available = available(counters, last_fwd_cnt, buf_alloc);
                let is_enough = available >= MAX_PACKET
                    && counters.rx_bytes.saturating_add(available) >= rcvlowat;
                if counters.fwd_cnt != last_fwd_cnt && !is_enough {
                    assert_ne!(update, CreditUpdate::No);
                    // An update may wait only if a redirected packet holds credit. Giving that
                    // credit back triggers the update.
                    assert!(update == CreditUpdate::Now || counters.redirected != 0);
                }
            }
        });
    }

    #[test]
    fn peer_is_not_told_of_each_packet() {
        let buf_alloc = 4 * MAX_PACKET;
        let after = |fwd_cnt, buf_used, redirected| Counters {
            rx_bytes: buf_used - redirected,
            buf_used,
            redirected,
            fwd_cnt,
        };
        let update = |counters: Counters| counters.credit_update(0, buf_alloc, 1, false);
        // The peer knows of enough credit until it knows of less than one packet.
        assert_eq!(update(after(1, 0, 0)), CreditUpdate::No);
        assert_eq!(update(after(3 * MAX_PACKET, 0, 0)), CreditUpdate::No);
        assert_eq!(update(after(3 * MAX_PACKET + 1, 0, 0)), CreditUpdate::Now);
        // The buffer is full of redirected packets, which may give their credit back soon.
        let full = after(MAX_PACKET, 3 * MAX_PACKET, 3 * MAX_PACKET);
        assert_eq!(update(full), CreditUpdate::Later);
        // The buffer is full of packets in the queue, which the owner may never read.
        assert_eq!(
            update(after(MAX_PACKET, 3 * MAX_PACKET, 0)),
            CreditUpdate::Now
        );
        // One record can need all the credit.
        assert_eq!(
            after(1, 0, 0).credit_update(0, buf_alloc, 1, true),
            CreditUpdate::Now
        );
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
