// SPDX-License-Identifier: GPL-2.0

//! KUnit tests of the transmit credit: how many bytes a redirect may send.

use kernel::prelude::*;

#[kunit_tests(vsock_sockmap_grant)]
mod tests {
    use super::super::tx_credit::{
        grant,
        Want, //
    };
    use kernel::prelude::*;

    const SIZES: [u32; 7] = [0, 1, 4096, 65_536, 262_144, 1 << 31, u32::MAX];

    /// Calls `check` with a length, the largest number of bytes that may be in flight, and the
    /// number of bytes in flight.
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
            let available = buf_size.saturating_sub(in_flight);
            let granted = grant(Want::Some, len, buf_size, in_flight);
            assert_eq!(granted.unwrap_or(0), len.min(available));
            assert_eq!(granted.is_err(), available == 0);
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
