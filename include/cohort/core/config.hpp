// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The version, what cohort asks of the compiler, and where its bodies are compiled.

#if defined(_MSVC_LANG)
#define COHORT_CPLUSPLUS _MSVC_LANG
#else
#define COHORT_CPLUSPLUS __cplusplus
#endif

#if COHORT_CPLUSPLUS < 202002L
#error "cohort needs C++20: compile with -std=c++20 or newer"
#endif

// Written by hand at every release; the constants below have the same.
#define COHORT_VERSION_MAJOR 0
#define COHORT_VERSION_MINOR 1
#define COHORT_VERSION_PATCH 0

// By default headers bring everything. With COHORT_SEPARATE_COMPILATION they bring declarations and
// what depends on the user's types; the rest, the files *.ipp, is compiled once, in a file that
// includes <cohort/src.hpp>. The target cohort::compiled does that and carries the definition.
#ifdef COHORT_SEPARATE_COMPILATION
#define COHORT_INLINE
#define COHORT_HOW_COMPILED separately_compiled
#else
#define COHORT_INLINE inline
#define COHORT_HOW_COMPILED header_only
#endif

// COHORT_MUST_BE_SAME(topic, value): the files of a program that give another value than the others
// for a topic do not link, and the linker's message shows theirs. Every file defines and uses a
// name with the value in it. The definitions of one topic lie in a COMDAT group, of which the
// linker keeps one, whichever name it defines. Link-time optimisation joins the assembler texts of
// files: then nothing may be defined twice, so the name is that of a section for clang (which lets
// the linker define `__start_NAME`), and a symbol that is defined once for g++, whose assemblers
// may not know the flag that keeps a section. Files that are joined in that way are not compared.
#define COHORT_TEXT_OF(...) #__VA_ARGS__
#define COHORT_TEXT(...) COHORT_TEXT_OF(__VA_ARGS__)
// clang-format off
#if defined(__ELF__)
#define COHORT_MUST_BE_SAME(topic, value) \
  COHORT_SAME_NAME("cohort_" #topic, "cohort_files_differ_in_" #topic "__this_one_is__" value)
#if defined(__clang__)
#define COHORT_SAME_NAME(group, name)                                              \
  __asm__(".pushsection " name ",\"aGR\",%progbits," group ",comdat\n"            \
          ".byte 0\n.popsection\n"                                                 \
          ".pushsection .data.rel.ro." group ",\"awR\",%progbits\n.balign 8\n"     \
          ".dc.a __start_" name "\n.popsection")
#else
#define COHORT_SAME_NAME(group, name)                                              \
  __asm__(".ifndef " name "\n"                                                     \
          ".pushsection .rodata." group ",\"aG\",%progbits," group ",comdat\n"     \
          ".globl " name "\n" name ": .byte 0\n.popsection\n.endif\n"              \
          ".pushsection .data.rel.ro." group ",\"aw\",%progbits\n.balign 8\n"      \
          ".dc.a " name "\n.popsection")
#endif
#else
#define COHORT_MUST_BE_SAME(topic, value) static_assert(true)
#endif

COHORT_MUST_BE_SAME(version_or_compilation,
                    COHORT_TEXT(COHORT_VERSION_MAJOR) "_" COHORT_TEXT(COHORT_VERSION_MINOR) "_"
                    COHORT_TEXT(COHORT_VERSION_PATCH) "_" COHORT_TEXT(COHORT_HOW_COMPILED));
// clang-format on

namespace cohort {

inline constexpr int version_major = COHORT_VERSION_MAJOR;
inline constexpr int version_minor = COHORT_VERSION_MINOR;
inline constexpr int version_patch = COHORT_VERSION_PATCH;

/// The version as text, "major.minor.patch".
inline constexpr const char* version_string = COHORT_TEXT(COHORT_VERSION_MAJOR) "." COHORT_TEXT(
    COHORT_VERSION_MINOR) "." COHORT_TEXT(COHORT_VERSION_PATCH);

}  // namespace cohort
