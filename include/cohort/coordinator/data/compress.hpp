// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Turns a submission of float or double into one of 16-bit numbers.

#include <cohort/coordinator/bundle.hpp>
#include <cohort/coordinator/instance.hpp>
#include <cohort/coordinator/options.hpp>
#include <cohort/core/element.hpp>
#include <cohort/protocol/validation.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace cohort::coordination {

namespace detail {

// Scaled in the type of the caller, then rounded.
template <class T, class Half>
void pack_half(void* out, const void* in, std::size_t n, double factor) {
  const T by = static_cast<T>(factor);
  Half* to = static_cast<Half*>(out);
  const T* from = static_cast<const T*>(in);
  for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<Half>(static_cast<float>(from[i] * by));
}

template <class T, class Half>
void unpack_half(void* out, const void* in, std::size_t n, double factor, std::int64_t divisor) {
  T* to = static_cast<T*>(out);
  const Half* from = static_cast<const Half*>(in);
  if (divisor == 1 || factor != 1) {
    const T by = static_cast<T>(factor / static_cast<double>(divisor));
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(static_cast<float>(from[i])) * by;
  } else {
    const T by = static_cast<T>(divisor);
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(static_cast<float>(from[i])) / by;
  }
}

template <class T, class Half>
inline constexpr wire_kernels wire_of{sizeof(T), element_type_of<T>, &pack_half<T, Half>,
                                      &unpack_half<T, Half>};

/// Null for elements that are not compressed.
template <class Half>
[[nodiscard]] const wire_kernels* wire_for(std::uint8_t element) {
  if (element == static_cast<std::uint8_t>(element_type::float32)) return &wire_of<float, Half>;
  if (element == static_cast<std::uint8_t>(element_type::float64)) return &wire_of<double, Half>;
  return nullptr;
}

}  // namespace detail

/// Does what `one.wanted` says: what is negotiated, packed and reduced from here on are numbers of
/// 16 bits, and the data plane converts where it fills and empties packs. The members of a bundle
/// that are neither float nor double stay as they are. Fails the task where it cannot be.
template <class Any>
void compress(task& one, std::string_view name, protocol::signature& sig) {
  const bool is_f16 = std::exchange(one.wanted, compression::none) == compression::f16;
  const auto refuse = [&](const std::string& why) {
    one.fail(errc::invalid_argument,
             std::string(one.verb()) + " '" + std::string(name) + "': compression " + why);
  };
  if (!is_reduction(sig.kind)) return refuse("is for all_reduce, reduce and reduce_scatter");
  const element_kernels* const half = is_f16 ? &kernels_of<f16> : &kernels_of<bf16>;
  const auto code = static_cast<reduction_code>(sig.reduction);
  const MPI_Op operation = half->operation(code);
  if (operation == MPI_OP_NULL && code != reduction_code::adasum) {
    return refuse("is not defined for " + name_of(code));
  }
  bool any = false;
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    tensor& each = one[i];
    if (each.kernels == nullptr) continue;  // an empty bundle
    const wire_kernels* const wire = is_f16 ? detail::wire_for<f16>(each.kernels->element)
                                            : detail::wire_for<bf16>(each.kernels->element);
    if (wire == nullptr) continue;
    each.wire = wire;
    each.kernels = half;
    each.operation = operation;
    any = true;
  }
  if (!any) return refuse("needs elements of float or double, not " + element_name(sig));
  if (const auto members = parse_members(sig.members); members && !sig.members.empty()) {
    std::string text;
    for (std::size_t i = 0; i < members->size(); ++i) {
      append_member(text, {(*members)[i].name, one[i].kernels->element, (*members)[i].count});
    }
    sig.members = std::move(text);
  }
  sig.element = one.first.kernels->element;
  sig.element_size = static_cast<std::uint32_t>(one.first.kernels->size);
  sig.flags |= protocol::signature_flag::half_on_wire;
  one.flags |= protocol::signature_flag::half_on_wire;
}

}  // namespace cohort::coordination
