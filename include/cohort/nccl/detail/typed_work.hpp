// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// An operation with its handler: the templates of `nccl/operation.hpp`, which includes this.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/operation.hpp>
#include <cohort/progress/deadline_record.hpp>
#include <cohort/progress/handler_operation.hpp>

#include <algorithm>
#include <new>

namespace cohort::nccl::detail {

// See detail/operation.ipp.
std::error_code prepare(work& op, const request& asked);
void fill(work& op, request& asked);
bool borrows_memory(const std::vector<buffer_use>& uses);
/// Makes the parts of an operation and checks each. Returns what is wrong, and says it.
std::error_code join(work& whole, std::vector<request>& parts);

template <class Handler, class Owned>
class typed_work final
    : public progress::handler_operation<typed_work<Handler, Owned>, Handler, work> {
 public:
  typed_work(Handler& handler, Owned&& owned)
      : typed_work::handler_operation(handler), owned_(std::move(owned)) {}

  /// After that the operation may be gone.
  void start(request&& asked) {
    fill(*this, asked);
    const auto borrows_any = [](const request& part) { return borrows_memory(part.uses); };
    this->connect(owner(), borrows_memory(this->uses) ||
                               std::any_of(asked.parts.begin(), asked.parts.end(), borrows_any));
    try {
      const bool has_parts = !asked.parts.empty();
      const std::error_code bad = has_parts ? join(*this, asked.parts) : prepare(*this, asked);
      if (bad) this->fail(bad);
    } catch (const std::bad_alloc&) {
      this->fail(std::make_error_code(std::errc::not_enough_memory));
    }
    if (tools::watched()) {
      this->watched.begin(tools::category::verb, tools::literal(this->verb), this->bytes);
    }
    if (this->joined) {
      this->comm->source.submit_parts(*this);
    } else {
      this->comm->source.submit(*this);
    }
  }

  [[nodiscard]] progress::engine& owner() const { return this->comm->source.engine(); }
  /// The peers count on it, so it cannot be withdrawn. A deadline is reported.
  void cancel(asio::cancellation_type) {
    if (progress::emitting_deadline()) this->comm->source.deadline_passed(*this);
  }
  [[nodiscard]] auto outcome(bool dropped) {
    if (dropped) this->fail(asio::error::operation_aborted);
    return [owned = std::move(owned_), why = this->error()](Handler&& handler) mutable {
      std::apply([&](auto&... vectors) { std::move(handler)(why, std::move(vectors)...); }, owned);
    };
  }

 private:
  Owned owned_;
};

template <class Handler, class Owned>
void start_work::operator()(Handler&& handler, request&& asked, Owned&& owned) const {
  using handler_type = std::decay_t<Handler>;
  using owned_type = std::decay_t<Owned>;
  if (!asked.comm) {
    progress::post_without_engine(
        std::forward<Handler>(handler),
        [back = owned_type(std::forward<Owned>(owned))](handler_type&& mine) mutable {
          const std::error_code none = errc::invalid_communicator;
          std::apply([&](auto&... vectors) { std::move(mine)(none, std::move(vectors)...); }, back);
        });
    return;
  }
  handler_type mine(std::forward<Handler>(handler));
  owned_type back(std::forward<Owned>(owned));
  typed_work<handler_type, owned_type>::make(mine, std::move(back))->start(std::move(asked));
}

}  // namespace cohort::nccl::detail

#endif
