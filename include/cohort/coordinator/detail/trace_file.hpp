// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A file of trace events that is valid JSON whenever nobody is writing to it.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace cohort::coordination::detail {

/// Text is appended in front of the closing brackets, which move with it in the same write. So a
/// process that is killed leaves a whole file, unless it is killed inside that one system call.
class trace_file {
 public:
  /// Closes the array of events and the object around it.
  static constexpr std::string_view brackets = "\n]}\n";

  trace_file() = default;
  ~trace_file() { close(); }
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  /// Makes the file, or empties it, and writes its beginning, which must end with `brackets`.
  [[nodiscard]] std::error_code open(const std::string& path, std::string_view beginning) noexcept;

  /// Writes over the brackets; the text must end with them. If that fails, the file is put back to
  /// what it was, as far as the system lets us.
  [[nodiscard]] std::error_code append(std::string_view text) noexcept;

  void close() noexcept;

  /// Bytes, brackets included.
  [[nodiscard]] std::uint64_t size() const noexcept { return end_ + brackets.size(); }

 private:
  [[nodiscard]] std::error_code write(std::string_view text) const noexcept;
  static std::error_code last_error() noexcept { return {errno, std::generic_category()}; }

  int file_ = -1;
  std::uint64_t end_ = 0;  // where the brackets stand
};

inline std::error_code trace_file::open(const std::string& path,
                                        std::string_view beginning) noexcept {
  close();
  do {
    file_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EINTR);
  if (file_ < 0) return last_error();
  end_ = 0;
  const std::error_code failed = write(beginning);
  if (failed) {
    close();
  } else {
    end_ = beginning.size() - brackets.size();
  }
  return failed;
}

inline std::error_code trace_file::append(std::string_view text) noexcept {
  const std::error_code failed = write(text);
  if (!failed) {
    end_ += text.size() - brackets.size();
    return failed;
  }
  // The brackets take no new space. If even this fails, the next write comes to the same place.
  if (!write(brackets)) {
    while (::ftruncate(file_, static_cast<off_t>(size())) != 0 && errno == EINTR) continue;
  }
  return failed;
}

inline void trace_file::close() noexcept {
  if (file_ >= 0) ::close(file_);
  file_ = -1;
}

inline std::error_code trace_file::write(std::string_view text) const noexcept {
  std::uint64_t at = end_;
  while (!text.empty()) {
    const ssize_t written = ::pwrite(file_, text.data(), text.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return last_error();
    if (written == 0) return std::make_error_code(std::errc::io_error);
    at += static_cast<std::uint64_t>(written);
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace cohort::coordination::detail
