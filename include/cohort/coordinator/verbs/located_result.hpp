// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What comes of a member of a bundle in device memory: an owner whose class only the caller
/// knows.

#include <cohort/comm/device_backend.hpp>
#include <cohort/core/buffer.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace cohort::coordination {

/// `count` elements for a result, beside an empty buffer; taken in the order of the backend's
/// stream, if it has given one.
template <class Owner>
Owner make_beside(std::size_t count, const Owner& like, const stream_ref& taken_on) {
  using traits = memory_traits<Owner>;
  if constexpr (requires { traits::make(count, like, taken_on); }) {
    if (taken_on.device >= 0) return traits::make(count, like, taken_on);
  }
  return traits::make(count, like);
}

/// An empty one beside a buffer. One of nothing and nowhere stays that until the backend says
/// where.
template <class B>
auto empty_beside(const B& buffer) {
  using traits = memory_traits<B>;
  using owner = typename traits::result;
  constexpr bool chooses =
      requires(owner like, stream_ref on) { memory_traits<owner>::make(std::size_t{0}, like, on); };
  if (chooses && traits::locate(buffer).device < 0) return owner();
  return owner(traits::make(0, buffer));
}

class located_result {
 public:
  located_result(const located_result&) = delete;
  virtual ~located_result() = default;
  /// Room for `count` elements, see make_beside. Throws what the device says.
  [[nodiscard]] virtual comm::device_buffer make(std::size_t count, const stream_ref& taken_on) = 0;

 protected:
  located_result() noexcept {}
};

template <class Owner>
class located_result_of final : public located_result {
 public:
  explicit located_result_of(Owner empty) : value(std::move(empty)) {}
  comm::device_buffer make(std::size_t count, const stream_ref& taken_on) override {
    using traits = memory_traits<Owner>;
    value = make_beside(count, value, taken_on);
    const std::size_t bytes = count * sizeof(*value.data());
    return {"result", value.data(), bytes, traits::locate(value), traits::lease(value)};
  }
  Owner value;
};

/// An empty one beside a buffer of class `B`.
template <class B>
std::shared_ptr<located_result> make_located_result(const void* buffer) {
  using owner = typename memory_traits<B>::result;
  return std::make_shared<located_result_of<owner>>(empty_beside(*static_cast<const B*>(buffer)));
}

}  // namespace cohort::coordination
