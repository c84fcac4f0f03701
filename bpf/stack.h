// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The top of the stack of the thread that runs now.
#pragma once

// A sampled stack goes into a ring, where each takes STACK_BYTES whatever its length.
enum { STACK_PAGE = 4096, STACK_PAGES = 4, STACK_BYTES = STACK_PAGE * STACK_PAGES };

// Copies the stack that begins at `from` to `to`, which has room for STACK_BYTES. Returns the bytes copied. Stops at a
// page that is not in memory, since nothing may wait here.
static __always_inline __u32 copy_stack(__u8 *to, __u64 from) {
    __u32 length = 0;
    for (int i = 0; i < STACK_PAGES; i++) {
        // Up to the end of the page: the next page may not belong to the stack.
        __u32 size = STACK_PAGE - (from & (STACK_PAGE - 1));
        if (length > STACK_BYTES - STACK_PAGE || size > STACK_PAGE)
            break;
        if (bpf_probe_read_user(to + length, size, (void *)from))
            break;
        length += size;
        from += size;
    }
    return length;
}
