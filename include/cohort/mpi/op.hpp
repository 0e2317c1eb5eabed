// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The MPI operation of a reduction: predefined where MPI has one for the element, otherwise
/// a function of this library, created once per process and freed when MPI is finalized.

#include <cohort/core/reduction.hpp>
#include <cohort/mpi/at_finalize.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/error.hpp>
#include <cohort/mpi/lock.hpp>
#include <cohort/mpi/native.hpp>

#include <atomic>
#include <concepts>
#include <type_traits>

namespace cohort::mpi {

/// The operation to reduce elements of type T with; use it together with reduction_type_of<T>().
/// A constant where MPI predefines it, one load after the first call otherwise. The library owns
/// it.
///
/// op::average is a sum here: divide with apply_average() when the reduction has completed. User
/// functions are called by MPI and must not throw: an exception ends the program.
template <class Op, element T>
  requires elementwise_reduction_for<Op, T>
[[nodiscard]] MPI_Op op_of();

namespace detail {

/// Whether MPI itself can apply the operation to the resolved element.
template <class Op, class T>
inline constexpr bool has_predefined_op = is_predefined<T>;
template <class F, bool Commutes, class T>
inline constexpr bool has_predefined_op<user_op<F, Commutes>, T> = false;

template <class Op>
[[nodiscard]] MPI_Op predefined_op() {
  if constexpr (std::same_as<Op, op::sum_t> || std::same_as<Op, op::average_t>) {
    return MPI_SUM;
  } else if constexpr (std::same_as<Op, op::product_t>) {
    return MPI_PROD;
  } else if constexpr (std::same_as<Op, op::min_t>) {
    return MPI_MIN;
  } else if constexpr (std::same_as<Op, op::max_t>) {
    return MPI_MAX;
  } else if constexpr (std::same_as<Op, op::logical_and_t>) {
    return MPI_LAND;
  } else if constexpr (std::same_as<Op, op::logical_or_t>) {
    return MPI_LOR;
  } else if constexpr (std::same_as<Op, op::logical_xor_t>) {
    return MPI_LXOR;
  } else if constexpr (std::same_as<Op, op::bit_and_t>) {
    return MPI_BAND;
  } else if constexpr (std::same_as<Op, op::bit_or_t>) {
    return MPI_BOR;
  } else if constexpr (std::same_as<Op, op::bit_xor_t>) {
    return MPI_BXOR;
  } else if constexpr (std::same_as<Op, op::min_loc_t>) {
    return MPI_MINLOC;
  } else {
    static_assert(std::same_as<Op, op::max_loc_t>, "an operation without a mapping to MPI");
    return MPI_MAXLOC;
  }
}

/// What MPI calls: `inout[i] = combine(in[i], inout[i])`, where `in` comes from the lower ranks.
template <class Op, class T, class Length>
void combine_arrays(void* in, void* inout, Length* length, MPI_Datatype*) noexcept {
  const T* left = static_cast<const T*>(in);
  T* right = static_cast<T*>(inout);
  for (Length i = 0; i < *length; ++i) {
    right[i] = Op::template combine<T>(left[i], right[i]);
  }
}

struct op_entry {
  std::atomic<bool> ready{false};
  MPI_Op op;
};

template <class Op, class T>
inline constinit op_entry own_op{};  // NOLINT(*-non-const-global-*)

inline void free_op(void* entry) noexcept { MPI_Op_free(&static_cast<op_entry*>(entry)->op); }

template <class Op, class T>
[[gnu::noinline, gnu::cold]] MPI_Op create_op() {
  auto& entry = own_op<Op, T>;
  const lock calls;
  const short_lock::guard hold(derive_lock);
  if (entry.ready.load(std::memory_order_relaxed)) {
    return entry.op;
  }
  watch_if_there();
  const int commuting = commutes<Op> ? 1 : 0;
#if MPI_VERSION >= 4
  check(MPI_Op_create_c(&combine_arrays<Op, T, MPI_Count>, commuting, &entry.op),
        "MPI_Op_create_c");
#else
  check(MPI_Op_create(&combine_arrays<Op, T, int>, commuting, &entry.op), "MPI_Op_create");
#endif
  at_finalize(&free_op, &entry);
  entry.ready.store(true, std::memory_order_release);
  return entry.op;
}

}  // namespace detail

template <class Op, element T>
  requires elementwise_reduction_for<Op, T>
inline MPI_Op op_of() {
  using operation = std::remove_cvref_t<Op>;
  using as = detail::resolved_t<T>;
  if constexpr (detail::has_predefined_op<operation, as>) {
    return detail::predefined_op<operation>();
  } else {
    // A user function sees the user's type; the library's own functions see what it stands for.
    using value = std::conditional_t<named_element<T>, as, T>;
    constexpr bool is_user_op = requires { typename operation::function_type; };
    using key = std::conditional_t<is_user_op, T, value>;
    const auto& entry = detail::own_op<operation, key>;
    return entry.ready.load(std::memory_order_acquire) ? entry.op
                                                       : detail::create_op<operation, key>();
  }
}

}  // namespace cohort::mpi
