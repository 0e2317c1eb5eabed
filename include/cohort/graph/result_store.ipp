// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of `graph/result_store.hpp`.

#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>
#include <cohort/graph/result_store.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <exception>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

namespace cohort::graph {

namespace detail {

// A file: magic, format, hash of the task, bytes of the result, then SHA-256 of these four and the
// result, then the result.
inline constexpr std::string_view result_magic = "COHORTRS";
inline constexpr std::uint64_t result_format = 1;
inline constexpr std::size_t result_before_digest = 8 + 8 + 32 + 8;
inline constexpr std::size_t result_header = result_before_digest + 32;
inline constexpr std::uint64_t result_block = 4096;
inline constexpr std::uint64_t result_parts = 16;  // of the bound: how finely it is kept
inline constexpr std::time_t use_grain = 60;       // seconds
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

struct close_listing {
  void operator()(DIR* listing) const noexcept { ::closedir(listing); }
};

/// Reads until the buffer is full or the file ends. Negative: errno tells.
COHORT_INLINE ::ssize_t read_fully(int file, std::span<std::byte> buffer) noexcept {
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

COHORT_INLINE bool write_fully(int file, std::span<const std::byte> bytes) noexcept {
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

[[nodiscard]] COHORT_INLINE bool is_hexadecimal(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char one) {
    return ('0' <= one && one <= '9') || ('a' <= one && one <= 'f');
  });
}
[[nodiscard]] COHORT_INLINE bool names_result(std::string_view name) noexcept {
  return name.size() == 2 * sizeof(sha256_digest) && is_hexadecimal(name);
}
[[nodiscard]] COHORT_INLINE bool names_unfinished(std::string_view name) noexcept {
  return name.size() == unfinished_digits + unfinished_suffix.size() &&
         name.ends_with(unfinished_suffix) && is_hexadecimal(name.substr(0, unfinished_digits));
}
[[nodiscard]] COHORT_INLINE std::string new_unfinished_name() {
  // The digits of a hash of random bytes: one function writes digits.
  const std::string digits = task_hash(random_bytes<sizeof(sha256_digest)>()).text();
  return digits.substr(0, unfinished_digits).append(unfinished_suffix);
}

[[nodiscard]] constexpr std::uint64_t in_blocks(std::uint64_t bytes) noexcept {
  return (bytes / result_block + (bytes % result_block != 0 ? 1 : 0)) * result_block;
}

[[nodiscard]] COHORT_INLINE std::array<std::byte, result_header> header_of(
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

/// Makes a directory and those above it; false with errno.
COHORT_INLINE bool make_directories(const std::string& path) {
  for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const bool whole = at == std::string::npos;
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), 0777) != 0 && errno != EEXIST) {
      // A directory above may be there although nothing can be made beside it.
      const int why = errno;
      struct stat found{};
      if (::stat(part.c_str(), &found) != 0) {
        errno = why;
        return false;
      }
    }
    if (whole) return true;
  }
}

[[noreturn]] COHORT_INLINE void throw_store_error(int why, const std::string& path,
                                                  std::string_view what) {
  throw error(std::error_code(why, std::generic_category()),
              "the directory of results '" + path + "' cannot be " + std::string(what));
}

}  // namespace detail

struct result_store::kept_file {
  std::string name;
  std::time_t seconds = 0;  // when it was used
  long nanoseconds = 0;
  std::uint64_t size = 0;
};

COHORT_INLINE result_store::result_store(std::string directory, const result_store_options& options)
    : path_(std::move(directory)),
      bound_(options.bound),
      abandoned_after_(options.abandoned_after) {
  if (path_.empty()) throw error(errc::invalid_argument, "the directory of results has no name");
  if (!detail::make_directories(path_)) detail::throw_store_error(errno, path_, "made");
  detail::result_file opened(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.descriptor < 0) detail::throw_store_error(errno, path_, "opened");
  // Only writing tells whether one may write. (Where the disk is full today it may not be so
  // later.)
  const std::string name = detail::new_unfinished_name();
  const detail::result_file tried(
      ::openat(opened.descriptor, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (tried.descriptor >= 0) {
    ::unlinkat(opened.descriptor, name.c_str(), 0);
  } else if (errno != ENOSPC && errno != EDQUOT) {
    detail::throw_store_error(errno, path_, "written");
  }
  // It first looks through the directory after any part of its first sixteenth: of a thousand ranks
  // that begin together, each at another time, and also those that end soon do their part.
  const std::uint64_t slack = bound_ / detail::result_parts;
  written_ = slack == 0 ? 0 : random_number() % slack;
  directory_ = std::exchange(opened.descriptor, -1);
}

COHORT_INLINE result_store::~result_store() { ::close(directory_); }

COHORT_INLINE void result_store::log(const std::string& text) noexcept {
  try {
    cohort::log::write(cohort::log::level::warning, "results in '" + path_ + "': " + text);
  } catch (...) {  // no memory for the line
  }
}

COHORT_INLINE void result_store::complain(std::atomic<int>& told, int cause,
                                          const std::string& text) {
  if (told.exchange(cause) == cause) return;
  log(text + ": " + std::generic_category().message(cause));
}

// Another process may have put a good one there in the meantime: then that one goes, which costs
// work and nothing else.
COHORT_INLINE void result_store::remove_damaged(const std::string& name, std::string_view why) {
  const bool removed = ::unlinkat(directory_, name.c_str(), 0) == 0;
  if (!removed && errno == ENOENT) return;  // another process was faster, and has told
  std::string text = name;
  text.append(removed ? " is removed: " : " is not used, and cannot be removed: ").append(why);
  log(text);
}

COHORT_INLINE std::optional<std::vector<std::byte>> result_store::find(
    const task_hash& what) noexcept {
  try {
    return read(what);
  } catch (const std::exception& problem) {  // no memory
    log(std::string("a result was not read: ") + problem.what());
  }
  return std::nullopt;
}

COHORT_INLINE std::optional<std::vector<std::byte>> result_store::read(const task_hash& what) {
  const std::string name = what.text();
  const auto failed = [&](const char* step) {
    const int cause = errno;
    if (cause == ENOENT || cause == ESTALE) return;  // not there, or removed on another host
    complain(told_reading_, cause, "cannot " + std::string(step) + " " + name);
  };
  // Not to wait for a pipe that somebody has put there, nor to follow a link.
  const detail::result_file file(
      ::openat(directory_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.descriptor < 0 && errno == ELOOP) {
    remove_damaged(name, "it is a link");
    return std::nullopt;
  }
  struct stat facts{};
  if (file.descriptor < 0 || ::fstat(file.descriptor, &facts) != 0) {
    failed("open");
    return std::nullopt;
  }
  if (!S_ISREG(facts.st_mode)) {
    remove_damaged(name, "it is no file");
    return std::nullopt;
  }
  std::array<std::byte, detail::result_header> header{};
  const ::ssize_t got = detail::read_fully(file.descriptor, header);
  if (got < 0) {
    failed("read");
    return std::nullopt;
  }
  wire::reader fields(std::span(header).subspan(detail::result_magic.size()));
  const auto format = fields.get<std::uint64_t>();
  fields.raw(sizeof(sha256_digest));
  const auto size = fields.get<std::uint64_t>();
  const auto whole = static_cast<std::uint64_t>(facts.st_size);
  if (std::memcmp(header.data(), detail::result_magic.data(), detail::result_magic.size()) != 0) {
    remove_damaged(name, "it is damaged, or no result");
    return std::nullopt;
  }
  if (format != detail::result_format) {
    remove_damaged(name, "it is damaged, or of another format");
    return std::nullopt;
  }
  if (static_cast<std::size_t>(got) < header.size() || whole < header.size() ||
      size != whole - header.size()) {
    remove_damaged(name, "it is damaged: its length is wrong");
    return std::nullopt;
  }
  std::vector<std::byte> result(static_cast<std::size_t>(size));
  const ::ssize_t rest = detail::read_fully(file.descriptor, result);
  if (rest < 0) {
    failed("read");
    return std::nullopt;
  }
  if (static_cast<std::size_t>(rest) != result.size() ||
      detail::header_of(what, result) != header) {
    remove_damaged(name, "it is damaged: its digest is wrong");
    return std::nullopt;
  }
  // Where the file is another user's its use cannot be recorded.
  const std::time_t now = std::time(nullptr);
  if (now > facts.st_mtim.tv_sec + detail::use_grain ||
      now < facts.st_mtim.tv_sec - detail::use_grain) {
    const std::array<struct timespec, 2> times{{{0, UTIME_OMIT}, {0, UTIME_NOW}}};
    ::futimens(file.descriptor, times.data());
  }
  return result;
}

COHORT_INLINE bool result_store::keep(const task_hash& what,
                                      std::span<const std::byte> result) noexcept {
  try {
    const std::string name = what.text();
    const std::uint64_t size = detail::in_blocks(detail::result_header + result.size());
    if (size > bound_ / 2) {
      if (!told_size_.exchange(true)) {
        log(name + " is not kept: " + std::to_string(result.size()) +
            " bytes are more than half of the bound of " + std::to_string(bound_));
      }
      return false;
    }
    struct stat there{};
    if (::fstatat(directory_, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0) return true;
    if (written_.fetch_add(size) + size > bound_ / detail::result_parts) make_room(size);
    const char* const step = write(name, detail::header_of(what, result), result);
    if (step == nullptr) {
      told_writing_ = 0;
      return true;
    }
    complain(told_writing_, errno, "cannot " + std::string(step) + " " + name + ", it is not kept");
  } catch (const std::exception& problem) {  // no memory, no random bytes
    log(std::string("a result was not kept: ") + problem.what());
  }
  return false;
}

// Null, or what has failed, with errno.
COHORT_INLINE const char* result_store::write(const std::string& name,
                                              std::span<const std::byte> header,
                                              std::span<const std::byte> result) {
  const std::string unfinished = detail::new_unfinished_name();
  detail::result_file file(::openat(directory_, unfinished.c_str(),
                                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.descriptor < 0) return "create";
  const char* step = nullptr;
  // Some file systems tell only when they sync that there was no space. And without it a machine
  // that fails may have the new name, but not what it names.
  if (!detail::write_fully(file.descriptor, header) ||
      !detail::write_fully(file.descriptor, result)) {
    step = "write";
  } else if (::fdatasync(file.descriptor) != 0) {
    step = "sync";
  } else if (::close(std::exchange(file.descriptor, -1)) != 0 && errno != EINTR) {
    step = "close";
  } else if (::renameat(directory_, unfinished.c_str(), directory_, name.c_str()) != 0) {
    step = "rename";
  }
  if (step != nullptr) {
    const int cause = errno;
    ::unlinkat(directory_, unfinished.c_str(), 0);
    errno = cause;
  }
  return step;
}

COHORT_INLINE void result_store::discard(const task_hash& what, std::string_view why) noexcept {
  try {
    remove_damaged(what.text(), why);
  } catch (const std::exception& problem) {
    log(std::string("a result was not removed: ") + problem.what());
  }
}

/// All results, and what all files take. Removes what was abandoned.
COHORT_INLINE std::uint64_t result_store::look_through(std::vector<kept_file>& results) {
  detail::result_file again(::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, detail::close_listing> listing(
      again.descriptor < 0 ? nullptr : ::fdopendir(again.descriptor));
  if (listing == nullptr) {
    complain(told_writing_, errno, "cannot list the directory");
    return 0;
  }
  again.descriptor = -1;
  const std::time_t now = std::time(nullptr);
  std::uint64_t total = 0;
  while (const dirent* const one = ::readdir(listing.get())) {
    const std::string_view name(one->d_name);
    const bool finished = detail::names_result(name);
    if (!finished && !detail::names_unfinished(name)) continue;
    struct stat facts{};
    if (::fstatat(directory_, one->d_name, &facts, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const bool abandoned = !finished && now - facts.st_mtim.tv_sec >= abandoned_after_.count();
    if (abandoned && ::unlinkat(directory_, one->d_name, 0) == 0) continue;
    const std::uint64_t size = detail::in_blocks(static_cast<std::uint64_t>(facts.st_size));
    total += size;
    if (finished) {
      results.push_back({std::string(name), facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, size});
    }
  }
  return total;
}

// So much is removed that `size` bytes, and then a sixteenth of the bound, fit below the bound. If
// anything is removed, it is a sixteenth more, so that it is done seldom.
COHORT_INLINE void result_store::make_room(std::uint64_t size) noexcept {
  const std::unique_lock looking(looking_, std::try_to_lock);
  if (!looking) return;  // another thread does it
  written_ = 0;
  try {
    const std::uint64_t slack = bound_ / detail::result_parts;
    std::vector<kept_file> results;
    std::uint64_t total = look_through(results);
    if (total + size <= bound_ - slack) return;
    const auto key = [](const kept_file& one) {
      return std::tuple(one.seconds, one.nanoseconds, std::string_view(one.name));
    };
    std::sort(results.begin(), results.end(),
              [&key](const kept_file& a, const kept_file& b) { return key(a) < key(b); });
    for (const kept_file& one : results) {
      if (total + size <= bound_ - 2 * slack) break;
      struct stat facts{};
      const bool there = ::fstatat(directory_, one.name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
      if (there && std::tie(facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec) !=
                       std::tie(one.seconds, one.nanoseconds)) {
        continue;  // used since
      }
      if (!there || ::unlinkat(directory_, one.name.c_str(), 0) == 0 || errno == ENOENT) {
        total -= one.size;
      }
    }
  } catch (const std::exception& problem) {  // no memory
    log(std::string("space was not made: ") + problem.what());
  }
}

}  // namespace cohort::graph
