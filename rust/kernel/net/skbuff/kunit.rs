// SPDX-License-Identifier: GPL-2.0

//! KUnit tests: buffers that are joined, and slices of them, keep their bytes and their order.

use crate::prelude::*;

#[kunit_tests(rust_net_skbuff)]
mod tests {
    use crate::{
        bindings,
        net::skbuff::{
            SkBuff,
            SkBuffQueue,
            SkBuffSlice, //
        },
        prelude::*, //
    };

    use pin_init::stack_pin_init;

    /// Makes a buffer whose bytes count up from `from`: `linear` bytes in the linear part, then
    /// `paged` bytes in fragments.
    fn filled(from: u32, linear: u32, paged: u32) -> SkBuff {
        let skb = SkBuff::alloc(0, linear, paged).unwrap();
        // `skb_put()` accepts only a buffer without bytes in fragments, so hide these bytes.
        // SAFETY: The buffer is valid, and its length was `paged`.
        unsafe { (*skb.as_raw()).len -= paged };
        // SAFETY: As above.
        unsafe { (*skb.as_raw()).data_len = 0 };
        // SAFETY: The buffer is valid, and its linear part has room for `linear` bytes.
        unsafe { bindings::skb_put(skb.as_raw(), linear) };
        // SAFETY: The buffer is valid, and its fragments hold `paged` bytes.
        unsafe { (*skb.as_raw()).len += paged };
        // SAFETY: As above.
        unsafe { (*skb.as_raw()).data_len = paged };
        for at in 0..linear + paged {
            let byte = (from + at) as u8;
            // SAFETY: The buffer is valid, and `byte` can be read.
            let stored = unsafe {
                bindings::skb_store_bits(skb.as_raw(), at as c_int, (&raw const byte).cast(), 1)
            };
            assert_eq!(stored, 0);
        }
        skb
    }

    /// Returns the byte at offset `at` of a buffer.
    fn byte(skb: &SkBuff, at: u32) -> u8 {
        let mut byte = 0u8;
        // SAFETY: The buffer is valid, and `byte` can be written.
        let copied = unsafe {
            bindings::skb_copy_bits(skb.as_raw(), at as c_int, (&raw mut byte).cast(), 1)
        };
        assert_eq!(copied, 0);
        byte
    }

    /// Makes a slice of a buffer that a test owns.
    fn slice(skb: &SkBuff, offset: u32, len: u32) -> Result<SkBuffSlice<'_>> {
        // SAFETY: The buffer is borrowed for the lifetime of the slice, and has no redirect target.
        unsafe { SkBuffSlice::from_raw(skb.as_raw(), offset, len) }
    }

    /// Makes `PARTS` buffers, and appends all but the first to the fragment list of the first.
    fn joined(linear: u32, paged: u32) -> SkBuff {
        const PARTS: u32 = 3;
        let mut skb = filled(0, linear, paged);
        let truesize = skb.truesize();
        stack_pin_init!(let rest = SkBuffQueue::new());
        for part in 1..PARTS {
            let other = filled(part * (linear + paged), linear, paged);
            rest.as_mut().push_back(other);
        }
        // SAFETY: The buffers are new: they have no clones and are not charged to a socket.
        unsafe { skb.append_frags(rest.as_mut()) }.unwrap();
        assert!(rest.as_mut().pop_front().is_none());
        assert_eq!(skb.len(), PARTS * (linear + paged));
        assert_eq!(skb.data_len(), skb.len() - linear);
        assert_eq!(skb.truesize(), PARTS * truesize);
        skb
    }

    #[test]
    fn appended_buffers_are_read_in_order() {
        for (linear, paged) in [(100, 0), (0, 5000), (7, 5000)] {
            let skb = joined(linear, paged);
            for at in 0..skb.len() {
                assert_eq!(byte(&skb, at), at as u8);
            }
        }
    }

    #[test]
    fn list_is_not_put_into_a_list() {
        stack_pin_init!(let rest = SkBuffQueue::new());
        rest.as_mut().push_back(joined(7, 0));
        // SAFETY: The buffers are new: they have no clones and are not charged to a socket.
        let appended = unsafe { filled(0, 7, 0).append_frags(rest.as_mut()) };
        assert_eq!(appended, Err(EINVAL));
        rest.as_mut().push_back(filled(0, 7, 0));
        // SAFETY: As above.
        let appended = unsafe { joined(7, 0).append_frags(rest.as_mut()) };
        assert_eq!(appended, Err(EINVAL));
    }

    #[test]
    fn slices_of_a_list_are_its_bytes() {
        for (linear, paged) in [(100, 0), (0, 6000), (5000, 0), (10, 20_000)] {
            let skb = joined(linear, paged);
            let len = linear + paged;
            for (offset, len) in [
                (0, len),
                (len, len),
                (2 * len, len),
                (1, len),
                (len - 1, 2),
                (len + 3, len - 3),
                (0, 3 * len),
            ] {
                for share in [false, true] {
                    let new = slice(&skb, offset, len).unwrap().to_skb(44, share).unwrap();
                    assert_eq!(new.len(), len);
                    for at in 0..len {
                        assert_eq!(byte(&new, at), (offset + at) as u8);
                    }
                }
            }
        }
    }

    #[test]
    fn slices_are_within_their_buffer() {
        let skb = filled(0, 10, 0);
        assert!(slice(&skb, 0, 11).is_err());
        assert!(slice(&skb, 10, 1).is_err());
        assert!(slice(&skb, u32::MAX, 1).is_err());
        let all = slice(&skb, 2, 8).unwrap();
        assert_eq!(all.part(3, 5).unwrap().offset(), 5);
        assert!(all.part(3, 6).is_err());
        assert!(all.part(1, u32::MAX).is_err());
    }

    #[test]
    fn no_slice_of_a_buffer_with_more_in_fragments_than_its_length() {
        let skb = filled(0, 0, 6000);
        // SAFETY: The buffer is valid, and is freed before anybody reads its data.
        unsafe { (*skb.as_raw()).len = 100 };
        assert!(slice(&skb, 0, 100).is_err());
    }
}
