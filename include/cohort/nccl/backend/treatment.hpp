// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// How an elected tensor is reduced: one call of NCCL, and what is done before and after it.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/types.hpp>

#include <cstdint>

namespace cohort::nccl {

/// What NCCL cannot do is done while tensors are packed and unpacked, by kernels or by the host.
struct treatment {
  element as{ncclUint8};
  operator_value op;
  double scale_before = 1;
  double scale_after = 1;
  std::int64_t divide_after = 1;
  bool by_host = false;  ///< of elements that only the host knows

  [[nodiscard]] bool finishes() const noexcept { return scale_after != 1 || divide_after != 1; }
  friend bool operator==(const treatment& a, const treatment& b) noexcept {
    return a.as.type == b.as.type && a.as.width == b.as.width && a.op == b.op &&
           a.scale_before == b.scale_before && a.scale_after == b.scale_after &&
           a.divide_after == b.divide_after && a.by_host == b.by_host;
  }
};

}  // namespace cohort::nccl

#endif
