// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of shm/segment.hpp.

#include <cohort/core/crypto.hpp>
#include <cohort/shm/segment.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace cohort::shm {

namespace detail {

[[noreturn]] COHORT_INLINE void throw_errno(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

/// Process ids mean the same to processes for which this is the same.
COHORT_INLINE std::uint64_t process_space() noexcept {
  struct stat about{};
  return ::stat("/proc/self/ns/pid", &about) == 0 ? about.st_ino : 0;
}

/// Closes what it holds.
struct descriptor {
  int value;
  ~descriptor() {
    if (value >= 0) ::close(value);
  }
};

}  // namespace detail

COHORT_INLINE segment::segment(std::size_t bytes) {
#if defined(__linux__)
  where_.nonce = random_number();
  const int made = ::memfd_create("cohort", MFD_CLOEXEC);
  if (made < 0) detail::throw_errno("memfd_create");
  where_.descriptor = made;
  try {
    // Without this the first touch of a page that is not to be had would be a signal.
    if (const int bad = ::posix_fallocate(made, 0, static_cast<off_t>(header + bytes))) {
      throw std::system_error(bad, std::generic_category(), "posix_fallocate");
    }
    where_.bytes = bytes;
    map(made);
  } catch (...) {
    seal();
    throw;
  }
  where_.host = process::host_id();
  where_.space = detail::process_space();
  where_.process = ::getpid();
  std::memcpy(base_, &where_.nonce, sizeof where_.nonce);
#else
  throw std::system_error(std::make_error_code(std::errc::not_supported),
                          std::to_string(bytes) + " bytes of shared memory");
#endif
}

COHORT_INLINE segment::segment(const address& of) {
  if (of.bytes == 0 || of.host != process::host_id() || of.space == 0 ||
      of.space != detail::process_space()) {
    throw std::system_error(std::make_error_code(std::errc::not_supported),
                            "the other process is on another node or in another container");
  }
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/fd/%d", of.process, of.descriptor);
  // Should the descriptor have become something else, opening it must do nothing.
  const detail::descriptor opened{::open(path.data(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
  if (opened.value < 0) detail::throw_errno(path.data());
  struct stat about{};
  if (::fstat(opened.value, &about) != 0) detail::throw_errno("fstat");
  const auto expected = static_cast<std::uint64_t>(header) + of.bytes;
  if (!S_ISREG(about.st_mode) || static_cast<std::uint64_t>(about.st_size) != expected) {
    throw std::system_error(std::make_error_code(std::errc::not_supported), path.data());
  }
  where_ = of;
  where_.descriptor = -1;
  map(opened.value);
  std::uint64_t nonce = 0;
  std::memcpy(&nonce, base_, sizeof nonce);
  if (nonce != of.nonce) {
    segment().swap(*this);
    throw std::system_error(std::make_error_code(std::errc::not_supported), path.data());
  }
}

COHORT_INLINE segment::~segment() {
  seal();
  if (base_ != nullptr) ::munmap(base_, header + static_cast<std::size_t>(where_.bytes));
}

COHORT_INLINE void segment::seal() noexcept {
  if (where_.descriptor >= 0) ::close(where_.descriptor);
  where_.descriptor = -1;
}

COHORT_INLINE void segment::map(int descriptor) {
  void* const mapped = ::mmap(nullptr, header + static_cast<std::size_t>(where_.bytes),
                              PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) detail::throw_errno("mmap");
  base_ = static_cast<std::byte*>(mapped);
}

}  // namespace cohort::shm
