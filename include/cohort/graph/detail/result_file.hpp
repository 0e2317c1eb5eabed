// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file One file of a directory of results: its name, its bytes, and whether they are what was
/// written.

#include <cohort/core/crypto.hpp>
#include <cohort/core/wire.hpp>
#include <cohort/graph/task_hash.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cohort::graph::detail {

// A file: magic, format, hash of the task, bytes of the result, then SHA-256 of these four and the
// result, then the result.
inline constexpr std::string_view result_magic = "COHORTRS";
inline constexpr std::uint64_t result_format = 1;
inline constexpr std::size_t result_format_at = 8;
inline constexpr std::size_t result_size_at = 8 + 8 + 32;
inline constexpr std::size_t result_before_digest = result_size_at + 8;
inline constexpr std::size_t result_header = result_before_digest + 32;
inline constexpr std::time_t use_grain = 60;  // seconds
inline constexpr std::string_view unfinished_suffix = ".part";
inline constexpr std::size_t unfinished_digits = 32;

/// Closes a descriptor.
struct result_file {
  explicit result_file(int number) noexcept : descriptor(number) {}
  ~result_file() {
    if (descriptor >= 0) ::close(descriptor);
  }
  result_file(const result_file&) = delete;
  result_file& operator=(const result_file&) = delete;
  int descriptor;
};

/// Reads until the buffer is full or the file ends. Negative: errno tells.
inline ::ssize_t read_fully(int file, std::span<std::byte> buffer) noexcept {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const ::ssize_t got = ::read(file, buffer.data() + done, buffer.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return got;
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return static_cast<::ssize_t>(done);
}

inline bool write_fully(int file, std::span<const std::byte> bytes) noexcept {
  while (!bytes.empty()) {
    const ::ssize_t put = ::write(file, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    if (put == 0) {
      errno = ENOSPC;
      return false;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

[[nodiscard]] inline bool is_hexadecimal(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char one) {
    return ('0' <= one && one <= '9') || ('a' <= one && one <= 'f');
  });
}
[[nodiscard]] inline bool names_result(std::string_view name) noexcept {
  return name.size() == 2 * sizeof(sha256_digest) && is_hexadecimal(name);
}
[[nodiscard]] inline bool names_unfinished(std::string_view name) noexcept {
  return name.size() == unfinished_digits + unfinished_suffix.size() &&
         name.ends_with(unfinished_suffix) && is_hexadecimal(name.substr(0, unfinished_digits));
}
[[nodiscard]] inline std::string new_unfinished_name() {
  // The digits of a hash of random bytes: one function writes digits.
  const std::string digits = task_hash(random_bytes<sizeof(sha256_digest)>()).text();
  return digits.substr(0, unfinished_digits).append(unfinished_suffix);
}

[[nodiscard]] inline std::array<std::byte, result_header> header_of(
    const task_hash& what, std::span<const std::byte> result) noexcept {
  std::array<std::byte, result_header> header{};
  std::byte* to = header.data();
  const auto add = [&to](const void* bytes, std::size_t size) {
    std::memcpy(to, bytes, size);
    to += size;
  };
  add(result_magic.data(), result_magic.size());
  add(wire::detail::to_wire(result_format).data(), 8);
  add(what.bytes().data(), what.bytes().size());
  add(wire::detail::to_wire(std::uint64_t{result.size()}).data(), 8);
  sha256 hash;
  hash.update(std::span(header).first(result_before_digest));
  hash.update(result);
  add(hash.finish().data(), sizeof(sha256_digest));
  return header;
}

/// What has become of reading a file.
struct result_reading {
  std::vector<std::byte> result;
  const char* damage = nullptr;  ///< why it is not what was written
  const char* failed = nullptr;  ///< the step at which the system has failed, with errno
  [[nodiscard]] bool good() const noexcept { return damage == nullptr && failed == nullptr; }
};

[[nodiscard]] inline result_reading read_result(int file, const task_hash& what) {
  struct stat facts{};
  if (::fstat(file, &facts) != 0) return {{}, nullptr, "look at"};
  if (!S_ISREG(facts.st_mode)) return {{}, "it is no file", nullptr};
  std::array<std::byte, result_header> header{};
  if (read_fully(file, header) < 0) return {{}, nullptr, "read"};
  if (std::memcmp(header.data(), result_magic.data(), result_magic.size()) != 0) {
    return {{}, "it is damaged, or no result", nullptr};
  }
  const std::span<const std::byte> bytes(header);
  if (wire::reader(bytes.subspan(result_format_at)).get<std::uint64_t>() != result_format) {
    return {{}, "it is damaged, or of another format", nullptr};
  }
  const auto size = wire::reader(bytes.subspan(result_size_at)).get<std::uint64_t>();
  const auto whole = static_cast<std::uint64_t>(facts.st_size);
  if (whole < result_header || size != whole - result_header) {
    return {{}, "it is damaged: its length is wrong", nullptr};
  }
  std::vector<std::byte> result(static_cast<std::size_t>(size));
  if (read_fully(file, result) < 0) return {{}, nullptr, "read"};
  if (header_of(what, result) != header) {
    return {{}, "it is damaged: its digest is wrong", nullptr};
  }
  // Its use is recorded. Where the file is another user's it cannot be.
  const std::time_t now = std::time(nullptr);
  const std::time_t used = facts.st_mtim.tv_sec;
  if (now > used + use_grain || now < used - use_grain) {
    const std::array<struct timespec, 2> times{{{0, UTIME_OMIT}, {0, UTIME_NOW}}};
    ::futimens(file, times.data());
  }
  return {std::move(result), nullptr, nullptr};
}

/// Writes a file so that it is there as a whole or not at all. Null, or the step that has failed,
/// with errno.
[[nodiscard]] inline const char* write_result(int directory, const task_hash& what,
                                              std::span<const std::byte> result) {
  const std::string unfinished = new_unfinished_name();
  const auto header = header_of(what, result);
  result_file file(::openat(directory, unfinished.c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.descriptor < 0) return "create";
  const char* failed = nullptr;
  // Some file systems tell only when they sync that there was no space. And without it a machine
  // that fails may have the new name, but not what it names.
  if (!write_fully(file.descriptor, header) || !write_fully(file.descriptor, result)) {
    failed = "write";
  } else if (::fdatasync(file.descriptor) != 0) {
    failed = "sync";
  } else if (::close(std::exchange(file.descriptor, -1)) != 0 && errno != EINTR) {
    failed = "close";
  } else if (::renameat(directory, unfinished.c_str(), directory, what.text().c_str()) != 0) {
    failed = "rename";
  }
  if (failed != nullptr) {
    const int cause = errno;
    ::unlinkat(directory, unfinished.c_str(), 0);
    errno = cause;
  }
  return failed;
}

}  // namespace cohort::graph::detail
