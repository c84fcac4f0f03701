// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// A call of SSL_read or SSL_write, seen at two places in the function: where it calls its inner function, and where that
// has returned.
#pragma once

#include "tls_thread.h"

// The inner function is called.
static __always_inline void tls_call_begins(struct tls_call *call, struct pt_regs *regs, __u32 kind) {
    // The verifier does not let a program compute where a register is, so all are read.
    __u64 ssl = CALLED_ARG1(regs), buffer = CALLED_ARG2(regs), asked = CALLED_ARG3(regs);
    __u64 fourth = CALLED_ARG4(regs), fifth = CALLED_ARG5(regs);
    barrier_var(fifth);
    call->ssl = ssl;
    call->buffer = buffer;
    call->asked = asked;
    // Since OpenSSL 3.2 flags, which are 0, come before it when writing.
    call->out = fourth ? fourth : fifth;
    call->kind = kind;
}

// The inner function has returned. Returns how many bytes it read or wrote; 0 if it did not, -1 if that cannot be read.
static __always_inline __s64 tls_call_ends(struct tls_call *call, struct pt_regs *regs) {
    __u64 bytes = 0;
    call->kind = TLS_NONE;
    if ((int)RETURNED(regs) > 0 && bpf_probe_read_user(&bytes, sizeof(bytes), (const void *)call->out))
        return -1;
    return bytes > call->asked ? 0 : bytes;
}
