// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of `graph/result_store.hpp`.

#include <cohort/core/error.hpp>
#include <cohort/core/log.hpp>
#include <cohort/graph/detail/result_file.hpp>
#include <cohort/graph/result_store.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <exception>
#include <memory>
#include <system_error>
#include <tuple>
#include <utility>

namespace cohort::graph {

namespace detail {

inline constexpr std::uint64_t result_block = 4096;
inline constexpr std::uint64_t result_parts = 16;  // of the bound: how finely it is kept

[[nodiscard]] constexpr std::uint64_t in_blocks(std::uint64_t bytes) noexcept {
  return (bytes / result_block + (bytes % result_block != 0 ? 1 : 0)) * result_block;
}

struct close_listing {
  void operator()(DIR* listing) const noexcept { ::closedir(listing); }
};

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
  throw cohort::error(std::error_code(why, std::generic_category()),
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
  if (path_.empty())
    throw cohort::error(errc::invalid_argument, "the directory of results has no name");
  if (!detail::make_directories(path_)) detail::throw_store_error(errno, path_, "made");
  detail::result_file opened(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (opened.descriptor < 0) detail::throw_store_error(errno, path_, "opened");
  // Only writing tells whether one may write. A disk that is full today may not be so later.
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

COHORT_INLINE void result_store::log(std::string_view text) noexcept {
  try {
    std::string line = "results in '" + path_ + "': ";
    cohort::log::write(cohort::log::level::warning, line.append(text));
  } catch (...) {  // no memory for the line
  }
}

COHORT_INLINE void result_store::complain(std::atomic<int>& told, std::string_view step,
                                          const std::string& name, std::string_view and_so) {
  const int cause = errno;
  if (told.exchange(cause) == cause) return;
  std::string line = "cannot ";
  line.append(step).append(" ").append(name).append(": ");
  log(line.append(std::generic_category().message(cause)).append(and_so));
}

// Another process may have put a good one there in the meantime: then that one goes, which costs
// work and nothing else.
COHORT_INLINE void result_store::remove(const std::string& name, std::string_view why) {
  const bool removed = ::unlinkat(directory_, name.c_str(), 0) == 0;
  if (!removed && errno == ENOENT) return;  // another process was faster, and has told
  std::string line = name;
  line.append(removed ? " is removed: " : " is not used, and cannot be removed: ");
  log(line.append(why));
}

COHORT_INLINE std::optional<std::vector<std::byte>> result_store::find(
    const task_hash& what) noexcept {
  try {
    const std::string name = what.text();
    // Not to wait for a pipe that somebody has put there, nor to follow a link.
    const detail::result_file file(
        ::openat(directory_, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    detail::result_reading reading;
    if (file.descriptor >= 0) {
      reading = detail::read_result(file.descriptor, what);
    } else if (errno == ELOOP) {
      reading.damage = "it is a link";
    } else {
      reading.failed = "open";
    }
    if (reading.good()) return std::move(reading.result);
    if (reading.damage != nullptr) {
      remove(name, reading.damage);
    } else if (errno != ENOENT && errno != ESTALE) {  // not there; removed on another host
      complain(told_reading_, reading.failed, name, "; what cannot be read is computed");
    }
  } catch (const std::exception& problem) {  // no memory
    log(problem.what());
  }
  return std::nullopt;
}

COHORT_INLINE bool result_store::keep(const task_hash& what,
                                      std::span<const std::byte> result) noexcept {
  const std::uint64_t size = detail::in_blocks(detail::result_header + result.size());
  writing_ += size;
  bool there = false;
  try {
    there = keep(what, result, size);
  } catch (const std::exception& problem) {  // no memory, no random bytes
    log(problem.what());
  }
  writing_ -= size;
  return there;
}

COHORT_INLINE bool result_store::keep(const task_hash& what, std::span<const std::byte> result,
                                      std::uint64_t size) {
  const std::string name = what.text();
  if (size > bound_ / 2) {
    if (told_size_.exchange(true)) return false;
    log(name + " is not kept: its " + std::to_string(result.size()) +
        " bytes are more than half of the bound of " + std::to_string(bound_));
    return false;
  }
  struct stat facts{};
  if (::fstatat(directory_, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if ((written_ += size) > bound_ / detail::result_parts) trim();
  const char* const failed = detail::write_result(directory_, what, result);
  if (failed != nullptr) {
    complain(told_writing_, failed, name, "; until this ends, results are not kept");
    return false;
  }
  told_writing_ = 0;
  return true;
}

COHORT_INLINE void result_store::discard(const task_hash& what, std::string_view why) noexcept {
  try {
    remove(what.text(), why);
  } catch (const std::exception& problem) {  // no memory
    log(problem.what());
  }
}

/// All results, and what all files take. Removes what was abandoned.
COHORT_INLINE std::uint64_t result_store::look_through(std::vector<kept_file>& results) {
  detail::result_file again(::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, detail::close_listing> listing(
      again.descriptor < 0 ? nullptr : ::fdopendir(again.descriptor));
  if (listing == nullptr) {
    complain(told_writing_, "list", "the directory", "; nothing is removed from it");
    return 0;
  }
  again.descriptor = -1;  // the listing has it
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

// So much is removed that what is being written, and then a sixteenth of the bound, fit below the
// bound. If anything is removed, it is a sixteenth more, so that it is done seldom.
COHORT_INLINE void result_store::trim() noexcept {
  try {
    const std::lock_guard guard(looking_);
    written_ = 0;
    const std::uint64_t slack = bound_ / detail::result_parts;
    std::vector<kept_file> results;
    std::uint64_t total = look_through(results);
    total += writing_;
    if (total <= bound_ - slack) return;
    const auto when = [](const kept_file& one) {
      return std::tuple(one.seconds, one.nanoseconds, std::string_view(one.name));
    };
    std::sort(results.begin(), results.end(),
              [&when](const kept_file& a, const kept_file& b) { return when(a) < when(b); });
    for (const kept_file& one : results) {
      if (total <= bound_ - 2 * slack) break;
      struct stat facts{};
      const bool there = ::fstatat(directory_, one.name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0;
      if (there &&
          (facts.st_mtim.tv_sec != one.seconds || facts.st_mtim.tv_nsec != one.nanoseconds)) {
        continue;  // used since
      }
      if (!there || ::unlinkat(directory_, one.name.c_str(), 0) == 0 || errno == ENOENT) {
        total -= one.size;
      }
    }
  } catch (const std::exception& problem) {  // no memory
    log(problem.what());
  }
}

}  // namespace cohort::graph
