// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A directory of results by the hashes of their tasks, shared by ranks, jobs and hosts.

#include <cohort/graph/task_hash.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cohort::graph {

struct result_store_options {
  /// What the files may take together, in bytes; each counts in blocks of 4 KiB. One result may
  /// take half of it.
  std::uint64_t bound = std::uint64_t{1} << 30U;
  /// A file that a writer has left unfinished is removed when it is as old as this.
  std::chrono::seconds abandoned_after = std::chrono::hours(1);
};

/// Keeps encoded results in a directory, one file for each, named by its hash.
///
/// - *Bounded.* The least recently used results go. Use is recorded to the minute, by the file's
///   time of modification. A store looks through the directory when it has itself written a
///   sixteenth of the bound. So that much more than the bound, or one result, may be there for each
///   *other* process that writes; seldom as much as two sixteenths together, for they look at
///   different times.
/// - *Atomic.* A file is written under another name, synced, and renamed. Who reads sees all of it
///   or none, also when a writer dies, and after the machine has failed.
/// - *Checked.* A file that is damaged, cut off, or of another format is a miss: it is removed and
///   one line is logged. The check finds accidents, not malice: who may write in the directory may
///   put there what he likes, so it should belong to who runs the jobs.
/// - *Shared.* Any number of stores, threads, processes and hosts may use one directory at once.
///   Whoever reads what another removes has either all of it or a miss. Only files with names of
///   this store's are ever touched.
/// - *Never in the way.* What cannot be read is a miss, what cannot be written is not kept (a full
///   disk, say): one line is logged for the first of its kind.
///
/// *Thread safety*: all members may be called by any threads at once. They block on the file
/// system.
///
/// \code
/// using namespace cohort::graph;
/// result_store results("/tmp/results", {.bound = std::uint64_t{8} << 30});
/// const task_hash what = source_hash<int>(7);
/// if (auto kept = results.find(what); !kept) results.keep(what, std::vector<std::byte>(100));
/// \endcode
class result_store {
 public:
  /// Opens the directory, which is made if it is not there. Throws error, with the system's code,
  /// the path and the cause, where it cannot be made or written.
  explicit result_store(std::string directory, const result_store_options& options = {});
  ~result_store();
  result_store(const result_store&) = delete;
  result_store& operator=(const result_store&) = delete;

  [[nodiscard]] const std::string& directory() const noexcept { return path_; }

  /// The result of this task, if it is there. *Cost*: opening, reading and SHA-256 of the file; of
  /// a miss, a system call.
  [[nodiscard]] std::optional<std::vector<std::byte>> find(const task_hash& what) noexcept;

  /// Keeps a result, unless one is there. Returns whether one is there now. *Cost*: SHA-256,
  /// writing and syncing a file; where space must be made, a system call for each file of the
  /// directory.
  bool keep(const task_hash& what, std::span<const std::byte> result) noexcept;

  /// Removes a result, and logs why: for bytes that are as they were written, but do not decode,
  /// because the type's format has changed and the function's version has not.
  void discard(const task_hash& what, std::string_view why) noexcept;

  /// Removes what is beyond the bound, and what others have abandoned. `keep` does it when it is
  /// time; call it after the bound has been lowered.
  void trim() noexcept;

 private:
  struct kept_file;

  [[nodiscard]] std::uint64_t look_through(std::vector<kept_file>& results);
  bool keep(const task_hash& what, std::span<const std::byte> result, std::uint64_t size);
  void remove(const std::string& name, std::string_view why);
  void complain(std::atomic<int>& told, std::string_view step, const std::string& name,
                std::string_view and_so);
  void log(std::string_view text) noexcept;

  std::string path_;
  int directory_ = -1;  // its descriptor: other files are named from there
  std::uint64_t bound_;
  std::chrono::seconds abandoned_after_;
  std::atomic<std::uint64_t> written_;     // since this store has looked through the directory
  std::atomic<std::uint64_t> writing_{0};  // bytes that are being written
  std::mutex looking_;
  std::atomic<int> told_reading_{0};  // the cause of the last failure that was logged
  std::atomic<int> told_writing_{0};
  std::atomic<bool> told_size_{false};
};

}  // namespace cohort::graph

#ifndef COHORT_SEPARATE_COMPILATION
#include <cohort/graph/result_store.ipp>
#endif
