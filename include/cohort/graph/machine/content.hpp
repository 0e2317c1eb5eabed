// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// Values as the machine sees them: counted, of unknown type, or failures.

#include <cohort/core/error.hpp>
#include <cohort/graph/machine/names.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cohort::graph::machine {

/// Why a task has no value, or an await ends without one. What depends on a failed task fails with
/// the same facts (graph F2).
struct failure {
  errc code{};
  key root;  ///< the task that failed first, or that was not spawned, or the value that was taken
  std::string task;                  ///< its name: "factor(3)"
  int rank = -1;                     ///< where it failed
  std::string text;                  ///< the sentence, with all facts of the table "Who sees what"
  std::vector<std::byte> exception;  ///< what a task has thrown, as it travels; else empty
};

/// A value, or a failure. Counted without atomics: references are taken and dropped on the thread
/// of the engine, also for tasks whose bodies run elsewhere.
class content {
 public:
  content() = default;
  content(const content&) = delete;
  content& operator=(const content&) = delete;
  virtual ~content() = default;

  /// Null for a value.
  [[nodiscard]] const failure* failed() const noexcept { return failed_; }
  /// Whether it has a wire format. What has none stays at home; who wants it elsewhere is refused.
  [[nodiscard]] virtual bool travels() const noexcept { return true; }
  /// The value as bytes, where they are or encoded now and kept; valid while the content lives and
  /// is not moved from. Requires `travels()`. Not called for failures.
  [[nodiscard]] virtual std::span<const std::byte> bytes() = 0;

 protected:
  const failure* failed_ = nullptr;

 private:
  friend class content_ptr;
  std::uint32_t count_ = 0;
};

/// Owns a reference to a content.
class content_ptr {
 public:
  content_ptr() noexcept = default;
  content_ptr(std::nullptr_t) noexcept {}  // NOLINT: as other pointers
  explicit content_ptr(content* one) noexcept : one_(one) { add(); }
  content_ptr(const content_ptr& other) noexcept : one_(other.one_) { add(); }
  content_ptr(content_ptr&& other) noexcept : one_(std::exchange(other.one_, nullptr)) {}
  content_ptr& operator=(content_ptr other) noexcept {
    std::swap(one_, other.one_);
    return *this;
  }
  ~content_ptr() { drop(); }
  [[nodiscard]] content* get() const noexcept { return one_; }
  content& operator*() const noexcept { return *one_; }
  content* operator->() const noexcept { return one_; }
  explicit operator bool() const noexcept { return one_ != nullptr; }
  [[nodiscard]] std::uint32_t use_count() const noexcept {
    return one_ == nullptr ? 0 : one_->count_;
  }

 private:
  void add() noexcept {
    if (one_ != nullptr) ++one_->count_;
  }
  void drop() noexcept {
    if (one_ != nullptr && --one_->count_ == 0) delete one_;
  }
  content* one_ = nullptr;
};

/// A failure in the place of a value.
class failed_content final : public content {
 public:
  explicit failed_content(failure why) : why_(std::move(why)) { failed_ = &why_; }
  [[nodiscard]] std::span<const std::byte> bytes() override { return {}; }

 private:
  failure why_;
};

/// A value that has come from another rank, as its bytes. Who knows its type keeps in `decoded`
/// what it has made of them, so that the next reader need not.
class arrived_content final : public content {
 public:
  explicit arrived_content(std::vector<std::byte> bytes) noexcept : bytes_(std::move(bytes)) {}
  [[nodiscard]] std::span<const std::byte> bytes() override { return bytes_; }
  content_ptr decoded;

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace cohort::graph::machine
