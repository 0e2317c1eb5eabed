// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Large values that stand apart from the bytes of their message: each is sent from the
/// container that it lies in, and received into the container that it will be read in.

#include <cohort/core/copy.hpp>
#include <cohort/core/function_table.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort::cluster {

/// From so many bytes on a vector or a text is attached.
inline constexpr std::size_t attachment_size = std::size_t{64} * 1024;
/// Of one message. What is more of them is among its bytes.
inline constexpr std::size_t attachment_limit = 64;
/// Bytes of containers that a process keeps for the next large values.
inline constexpr std::size_t recycled_limit = std::size_t{64} << 20U;

/// A container of bytes, of numbers or of what is as plain, whichever it is.
class attachment {
 public:
  /// Makes one for so many bytes, or none if the container cannot have that many.
  using maker = std::shared_ptr<attachment>(std::size_t bytes);

  attachment(const attachment&) = delete;
  attachment& operator=(const attachment&) = delete;
  virtual ~attachment() = default;

  /// That of its maker in the function table, which tells the other side which container it is.
  [[nodiscard]] virtual std::size_t number() const = 0;
  /// What is there, which is all of it where it is sent.
  [[nodiscard]] virtual std::span<const std::byte> bytes() const noexcept = 0;
  /// Bytes for which there is memory.
  [[nodiscard]] virtual std::size_t capacity() const noexcept = 0;
  /// So many bytes will come; what is there is overwritten.
  virtual void expect(std::size_t bytes) = 0;
  /// Where those lie that come after the first `have`: never empty before all have come. It grows
  /// with what has come, so that an announcement alone takes no memory.
  [[nodiscard]] virtual std::span<std::byte> room(std::size_t have) = 0;

 protected:
  attachment() = default;

  /// Written at once to memory that is new: as much as stays in a cache until bytes come.
  static constexpr std::size_t growth = std::size_t{256} * 1024;
  /// Address space that is taken at once; then eight times what has come.
  static constexpr std::size_t first_reserve = std::size_t{64} << 20U;
};
using attachment_ptr = std::shared_ptr<attachment>;

namespace detail {

/// Those that nobody uses any more, the oldest first: a new one has new pages, and these take as
/// long as the message. Of all threads.
template <class Any>
class basic_recycled_attachments {
 public:
  static basic_recycled_attachments& instance() {
    static auto* const one = new basic_recycled_attachments;  // threads may outlive statics
    return *one;
  }

  /// One of that container with memory for so many bytes, and not for more than twice as many.
  [[nodiscard]] std::unique_ptr<attachment> take(std::size_t number, std::size_t bytes) {
    const std::lock_guard hold(mutex_);
    const auto fits = [&](const std::unique_ptr<attachment>& each) {
      return each->number() == number && each->capacity() >= bytes && each->capacity() / 2 <= bytes;
    };
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
    if (found == kept_.rend()) return nullptr;
    std::unique_ptr<attachment> one = std::move(*found);
    kept_.erase(std::next(found).base());
    bytes_ -= one->capacity();
    return one;
  }
  void give(std::unique_ptr<attachment> one) noexcept {
    const std::size_t bytes = one->capacity();
    if (bytes < attachment_size || bytes > recycled_limit) return;
    const std::lock_guard hold(mutex_);
    try {
      kept_.push_back(std::move(one));
    } catch (const std::bad_alloc&) {
      return;
    }
    for (bytes_ += bytes; bytes_ > recycled_limit; kept_.pop_front()) {
      bytes_ -= kept_.front()->capacity();
    }
  }
  /// What is kept, in bytes.
  [[nodiscard]] std::size_t bytes() noexcept {
    const std::lock_guard hold(mutex_);
    return bytes_;
  }

 private:
  basic_recycled_attachments() = default;

  std::mutex mutex_;
  std::deque<std::unique_ptr<attachment>> kept_;
  std::size_t bytes_ = 0;
};
using recycled_attachments = basic_recycled_attachments<void>;

/// Has the kernel make few large pages of memory that is new instead of many small ones.
inline void want_large_pages([[maybe_unused]] void* begin,
                             [[maybe_unused]] std::size_t bytes) noexcept {
#if defined(MADV_HUGEPAGE)
  constexpr std::uintptr_t page = std::uintptr_t{2} << 20U;
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t first = (at + page - 1) / page * page;
  const std::uintptr_t last = (at + bytes) / page * page;
  if (first >= last) return;
  static_cast<void>(::madvise(reinterpret_cast<void*>(first),  // NOLINT: only advice
                              last - first, MADV_HUGEPAGE));
#endif
}

/// Hands it to the next one.
struct recycle {
  void operator()(attachment* one) const noexcept {
    recycled_attachments::instance().give(std::unique_ptr<attachment>(one));
  }
};

}  // namespace detail

template <class Container>
class attachment_of final : public attachment {
 public:
  using element = typename Container::value_type;
  static_assert(std::is_trivially_copyable_v<element>);

  explicit attachment_of(Container&& from = Container()) noexcept : values(std::move(from)) {}

  /// One that comes: an attachment::maker.
  [[nodiscard]] static attachment_ptr received(std::size_t bytes) {
    if (bytes == 0 || bytes % sizeof(element) != 0) return nullptr;
    const std::size_t number = registered<&attachment_of::received>::index();
    std::unique_ptr<attachment> one = detail::recycled_attachments::instance().take(number, bytes);
    if (!one) one = std::make_unique<attachment_of>();
    one->expect(bytes);
    return {one.release(), detail::recycle()};
  }
  /// A container that is sent.
  [[nodiscard]] static attachment_ptr sent(Container&& from) {
    return {new attachment_of(std::move(from)), detail::recycle()};
  }
  /// A copy that is sent.
  [[nodiscard]] static attachment_ptr copy(std::span<const element> from) {
    attachment_ptr one = received(from.size_bytes());
    Container& to = static_cast<attachment_of&>(*one).values;
    if (to.size() == from.size()) {
      copy_bytes(to.data(), from.data(), from.size_bytes());
      return one;
    }
    to.reserve(from.size());
    detail::want_large_pages(to.data(), one->capacity());
    to.assign(from.begin(), from.end());
    return one;
  }

  [[nodiscard]] std::size_t number() const override {
    return registered<&attachment_of::received>::index();
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept override {
    return std::as_bytes(std::span(values));
  }
  [[nodiscard]] std::size_t capacity() const noexcept override {
    return values.capacity() * sizeof(element);
  }
  void expect(std::size_t bytes) override {
    expected_ = bytes / sizeof(element);
    if (values.size() > expected_) values.resize(expected_);
  }
  [[nodiscard]] std::span<std::byte> room(std::size_t have) override {
    if (have == values.size() * sizeof(element) && values.size() < expected_) grow();
    return std::as_writable_bytes(std::span(values)).subspan(have);
  }

  Container values;

 private:
  void grow() {
    const std::size_t more = std::max<std::size_t>(growth / sizeof(element), 1);
    const std::size_t next = std::min(expected_, values.size() + more);
    if (next > values.capacity()) {
      const std::size_t wanted = std::max(first_reserve / sizeof(element), 8 * values.size());
      values.reserve(std::min(expected_, std::max(next, wanted)));
      detail::want_large_pages(values.data(), capacity());
    }
    values.resize(next);
  }

  std::size_t expected_ = 0;
};

/// The arguments or the result of a call as they travel.
struct payload {
  payload() noexcept {}
  payload(std::vector<std::byte> encoded) noexcept  // NOLINT(*-explicit-*): all of it
      : bytes(std::move(encoded)) {}

  /// In bytes, of all.
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t all = bytes.size();
    for (const attachment_ptr& each : attachments) all += each->bytes().size();
    return all;
  }

  std::vector<std::byte> bytes;
  std::vector<attachment_ptr> attachments;  ///< those that `bytes` speak of, in that order
};

namespace detail {

/// Numbers at fixed places, little-endian.
inline void store(std::byte* to, std::uint64_t value, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}
[[nodiscard]] inline std::uint64_t load(const std::byte* from, std::size_t bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
  }
  return value;
}

}  // namespace detail

/// What stands behind the bytes of a message that has attachments: of each its container's number
/// in the function table and its size, then how many there are.
struct attachment_table {
  static constexpr std::size_t entry_size = 12;

  static void append_to(payload& what) {
    for (const attachment_ptr& each : what.attachments) {
      append(what.bytes, each->number(), 4);
      append(what.bytes, each->bytes().size(), 8);
    }
    append(what.bytes, what.attachments.size(), 4);
  }
  /// Makes the attachments, without their bytes, and returns how many these will be; makes none
  /// where the message would have more than `max_message`. Nothing, if this is no such table.
  [[nodiscard]] static std::optional<std::size_t> take_from(payload& what,
                                                            std::size_t max_message) {
    std::vector<std::byte>& in = what.bytes;
    if (in.size() < 4) return std::nullopt;
    const std::uint64_t count = detail::load(in.data() + in.size() - 4, 4);
    const std::size_t size = static_cast<std::size_t>(count) * entry_size + 4;
    if (count == 0 || count > attachment_limit || size > in.size()) return std::nullopt;
    const std::byte* at = in.data() + in.size() - size;
    const std::size_t others = in.size() - size;
    const std::size_t most = max_message - std::min(max_message, others);
    std::size_t all = 0;
    for (std::uint64_t i = 0; i < count; ++i, at += entry_size) {
      const auto number = static_cast<std::size_t>(detail::load(at, 4));
      auto* const make = function_table::instance().find<attachment::maker>(number);
      const std::uint64_t bytes = detail::load(at + 4, 8);
      if (make == nullptr || bytes > std::numeric_limits<std::size_t>::max() - all) {
        return std::nullopt;
      }
      all += static_cast<std::size_t>(bytes);
      if (all > most) continue;
      what.attachments.push_back(make(static_cast<std::size_t>(bytes)));
      if (!what.attachments.back()) return std::nullopt;
    }
    in.resize(others);
    if (all > most) what.attachments.clear();
    return all;
  }

 private:
  static void append(std::vector<std::byte>& out, std::uint64_t value, std::size_t bytes) {
    out.resize(out.size() + bytes);
    detail::store(out.data() + out.size() - bytes, value, bytes);
  }
};

}  // namespace cohort::cluster
