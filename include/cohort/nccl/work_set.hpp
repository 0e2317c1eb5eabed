// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Operations on several devices that are posted by one group of NCCL and end together.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/work.hpp>

#include <cstddef>
#include <deque>

namespace cohort::nccl {

/// An operation on one device that belongs to a whole, which is what somebody waits for.
class partial_work final : public work {
 public:
  partial_work() noexcept : work(&never) {}

 private:
  static void never(progress::operation*, action) {}
};

/// The parts of one operation, each in the queue of its device. They are posted when all of them
/// are at the head; the operation ends when all of them have ended, with the first error.
struct work_set {
  explicit work_set(work& all) noexcept : whole(&all) {}
  work* whole;
  std::deque<partial_work> parts;
  std::size_t left = 0;   // parts that have not ended
  bool launched = false;  // all communicators of the group have said success
};

}  // namespace cohort::nccl

#endif
