/* What the configure script of elfutils would find with musl. That script also asks for argp, fts and obstack, which
   musl lacks and libelf does not use, so scripts/dist-musl.sh compiles libelf without it. */
#ifndef MONGOSONAR_MUSL_CONFIG_H
#define MONGOSONAR_MUSL_CONFIG_H

#define _GNU_SOURCE 1
#define PACKAGE_NAME "elfutils"
#define PACKAGE_VERSION "0"
#define HAVE_ERR_H 1
#define HAVE_DECL_MEMPCPY 1
#define HAVE_DECL_MEMRCHR 1
#define HAVE_DECL_RAWMEMCHR 0
#define HAVE_DECL_POWEROF2 0
#define HAVE_DECL_REALLOCARRAY 1
#define HAVE_FALLTHROUGH 1
#define HAVE_STDATOMIC_H 1
#define HAVE_VISIBILITY 1

#include <eu-config.h>

#endif
