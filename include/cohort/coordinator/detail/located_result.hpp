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

class located_result {
 public:
  located_result(const located_result&) = delete;
  virtual ~located_result() = default;
  /// Room for `count` elements. Throws what the device says.
  [[nodiscard]] virtual comm::device_buffer make(std::size_t count) = 0;

 protected:
  located_result() noexcept {}
};

template <class Owner>
class located_result_of final : public located_result {
 public:
  explicit located_result_of(Owner empty) : value(std::move(empty)) {}
  comm::device_buffer make(std::size_t count) override {
    using traits = memory_traits<Owner>;
    value = traits::make(count, value);
    const std::size_t bytes = count * sizeof(*value.data());
    return {"result", value.data(), bytes, traits::locate(value), traits::lease(value)};
  }
  Owner value;
};

/// An empty one beside a buffer of class `B`.
template <class B>
std::shared_ptr<located_result> make_located_result(const void* buffer) {
  using traits = memory_traits<B>;
  using owner = typename traits::result;
  return std::make_shared<located_result_of<owner>>(
      traits::make(0, *static_cast<const B*>(buffer)));
}

}  // namespace cohort::coordination
