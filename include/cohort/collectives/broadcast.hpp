// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::broadcast`: every rank gets the root's elements.

#include <cohort/collectives/bodies/call.hpp>
#include <cohort/comm/body.hpp>
#include <cohort/mpi/layout.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>

namespace cohort {
namespace collectives {
template <class Buffer>
struct broadcast_body;
}  // namespace collectives

/// Gives every rank the elements that `buffer` holds on rank `root`.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same root, the same
/// number of elements and the same type on all ranks. Strided views are packed, because ranks that
/// give MPI different counts of different types confuse some libraries. An rvalue container is
/// owned and comes back.
/// *Completion*: `void(std::error_code)`, or `void(std::error_code, Container)`.
/// *Cost*: MPI's; log2(n) messages of the buffer's size for small ones. *Source*: `MPI_Ibcast`.
/// *Example*: `co_await cohort::broadcast(world, weights, 0);`
template <class Buffer, std::integral Root, class Token = default_token>
  requires verb_output<Buffer> &&
           completion_token_for<Token,
                                typename collectives::broadcast_body<comm::kept<Buffer>>::signature>
auto broadcast(const communicator& comm, Buffer&& buffer, Root root, Token&& token = Token()) {
  const auto place = collectives::detail::place_in(comm, collectives::detail::to_rank(root));
  return comm::initiate(comm, collectives::broadcast_body<comm::kept<Buffer>>(buffer, place),
                        token);
}

/// Chosen when a call does not fit: says what is wrong with it.
template <class... Arguments>
explained broadcast(const communicator&, Arguments&&...) {
  collectives::detail::explain_movement<collectives::detail::has_root::yes, Arguments...>();
  return {};
}

namespace collectives {

template <class Buffer>
struct broadcast_body : comm::body_over<std::tuple<comm::argument<Buffer>>> {
  using value_type = typename comm::argument<Buffer>::value_type;
  static constexpr const char* name = name_of(op_kind::broadcast).data();

  broadcast_body(auto& buffer, detail::place where_) : data(buffer), where(where_) {}

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept {
    return where.good_root() ? errc{} : errc::bad_root;
  }
  void explain(failure_text& text) const {
    text.with("root", where.root).with("ranks", where.ranks).with("count", data.count());
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.bytes(); }
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const noexcept {
    return {static_cast<std::int64_t>(data.count()), sizeof(value_type), 0, where.root};
  }
  [[nodiscard]] comm::collective_call call() {
    return {op_kind::broadcast,
            MPI_IN_PLACE,
            place_of_elements(),
            data.count(),
            mpi::datatype_of<value_type>(),
            MPI_OP_NULL,
            where.root};
  }
  /// In parts of less than 2 GiB, because MPICH 4.0 reports an error after more.
  int post(comm::poster& post) {
    constexpr std::size_t most = std::max(mpi::max_int_count / sizeof(value_type), std::size_t{1});
    value_type* const here = place_of_elements();
    std::size_t first = 0;
    do {
      const std::size_t count = std::min(most, data.count() - first);
      MPI_Request request = MPI_REQUEST_NULL;
      const int rc = post.add(
          mpi::post::ibcast(here + first, static_cast<MPI_Count>(count),
                            mpi::datatype_of<value_type>(), where.root, post.native(), &request),
          request);
      if (rc != MPI_SUCCESS) return rc;
      first += count;
    } while (first < data.count());
    return MPI_SUCCESS;
  }
  auto finish(std::error_code error, const comm::outcome_of_requests&) {
    if (!error && !where.is_root()) copy.finish(data.view());
    return data.take();
  }

  template <class Self, class Visit>
  static void each_buffer(Self& self, Visit visit) {
    visit("buffer", self.data, self.where.is_root(), !self.where.is_root());
  }
  [[nodiscard]] value_type* place_of_elements() {
    return where.is_root() ? copy.in(data.view()) : copy.out(data.view());
  }

  comm::argument<Buffer> data;
  detail::packed<value_type> copy;
  detail::place where;
};

}  // namespace collectives
}  // namespace cohort
