// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// One message between two devices, and collectives with a count for each rank, which are groups of
/// messages. What all verbs share is told in `nccl/collectives.hpp`.

#include <cohort/nccl/native.hpp>

#if COHORT_HAS_NCCL

#include <cohort/nccl/operation.hpp>
#include <cohort/nccl/types.hpp>

#include <numeric>
#include <span>

namespace cohort::nccl {

namespace detail {

/// A message of the elements of a buffer.
template <class B>
request message_request(const communicator& comm, const device::stream& on, const char* verb,
                        op_kind what, B& buffer, int peer) {
  using T = element_of<B>;
  request asked = request_for(comm.state(), on, verb, what, peer);
  asked.everybody = false;
  count_as(asked, moved_as<T>(), buffer.size(), sizeof(T));
  return asked;
}

}  // namespace detail

/// Sends the elements to another rank, which must receive as many. Ends when they have left.
/// Messages between two ranks match in order. Two ranks that send to each other need a group.
/// *Source*: `ncclSend`.
template <device_buffer B, class... Tail>
  requires movable<element_of<B>> && detail::tail_for<detail::signature_for<B>, Tail...>
auto send(const communicator& comm, const device::stream& on, B&& buffer, int to, Tail&&... tail) {
  request asked = detail::message_request(comm, on, "send", op_kind::send, buffer, to);
  asked.one.from = buffer.data();
  return detail::initiate_one<B>(std::move(asked), "buffer", buffer, std::forward<Tail>(tail)...);
}

/// Receives exactly as many elements as the buffer has. *Source*: `ncclRecv`.
template <writable_buffer B, class... Tail>
  requires movable<element_of<B>> && detail::tail_for<detail::signature_for<B>, Tail...>
auto recv(const communicator& comm, const device::stream& on, B&& buffer, int from,
          Tail&&... tail) {
  request asked = detail::message_request(comm, on, "recv", op_kind::recv, buffer, from);
  asked.one.to = buffer.data();
  return detail::initiate_one<B>(std::move(asked), "buffer", buffer, std::forward<Tail>(tail)...);
}

namespace detail {

/// One call of a group, about `count` elements.
inline call part_of(op_kind what, element as, std::size_t count, std::size_t size, int peer) {
  call made;
  made.what = what;
  made.type = as.type;
  made.count = count * as.width;
  made.width = size / as.width;
  made.root = peer;
  return made;
}

inline std::size_t total(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

inline void check_counts(request& asked, const char* field, std::span<const std::size_t> counts) {
  check_sizes(asked, field, counts.size(), ranks_of(asked));
}

}  // namespace detail

/// Every rank gets the elements of all: `counts`, the same on all ranks, says how many of each.
/// Never in place.
template <device_buffer In, writable_buffer Out, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> && movable<element_of<In>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto all_gather_v(const communicator& comm, const device::stream& on, In&& in, Out&& out,
                  std::span<const std::size_t> counts, Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "all_gather_v", op_kind::send);
  detail::check_counts(asked, "counts", counts);
  if (asked.bad == errc{}) {
    detail::check_sizes(asked, "in", in.size(), counts[detail::rank_of(asked)]);
    detail::check_sizes(asked, "out", out.size(), detail::total(counts));
  }
  std::size_t at = 0;
  for (int peer = 0; asked.bad == errc{} && peer < static_cast<int>(counts.size()); ++peer) {
    const std::size_t count = counts[static_cast<std::size_t>(peer)];
    call to = detail::part_of(op_kind::send, moved_as<T>(), in.size(), sizeof(T), peer);
    to.from = in.data();
    call from = detail::part_of(op_kind::recv, moved_as<T>(), count, sizeof(T), peer);
    from.to = out.data() + at;
    at += count;
    asked.more.push_back(to);
    asked.more.push_back(from);
  }
  asked.never_in_place = true;
  return detail::initiate_both<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

/// Every rank gets its part of the combination: `counts`, the same on all ranks, says how many
/// elements the part of each has, and `in` has all of them. Never in place. *Source*: a group of
/// `ncclReduce`, one for each rank.
template <device_buffer In, writable_buffer Out, reduction_of<element_of<In>> Op, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto reduce_scatter_v(const communicator& comm, const device::stream& on, In&& in, Out&& out,
                      std::span<const std::size_t> counts, const Op& op, Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "reduce_scatter_v", op_kind::reduce);
  detail::check_counts(asked, "counts", counts);
  if (asked.bad == errc{}) {
    detail::check_sizes(asked, "in", in.size(), detail::total(counts));
    detail::check_sizes(asked, "out", out.size(), counts[detail::rank_of(asked)]);
  }
  std::size_t at = 0;
  for (std::size_t root = 0; asked.bad == errc{} && root < counts.size(); ++root) {
    const bool is_root = root == detail::rank_of(asked);
    call part = detail::part_of(op_kind::reduce, reduced_as<T>(), counts[root], sizeof(T),
                                static_cast<int>(root));
    part.op = as_operator<T>(op);
    part.from = in.data() + at;
    part.to = is_root ? out.data() : nullptr;
    at += counts[root];
    asked.more.push_back(part);
  }
  asked.never_in_place = true;
  return detail::initiate_both<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}
template <device_buffer In, device_buffer Out, detail::misfit<In> Op, class... Tail>
auto reduce_scatter_v(const communicator&, const device::stream&, In&&, Out&&,
                      std::span<const std::size_t>, const Op&, Tail&&...) {
  return detail::no_reduction<Op, In>();
}

/// Rank j gets `send_counts[j]` elements of `in`, which are one behind the other, and from rank j
/// come `recv_counts[j]`. Never in place.
template <device_buffer In, writable_buffer Out, class... Tail>
  requires std::same_as<element_of<In>, element_of<Out>> && movable<element_of<In>> &&
           detail::tail_for<detail::signature_for<In, Out>, Tail...>
auto all_to_all_v(const communicator& comm, const device::stream& on, In&& in,
                  std::span<const std::size_t> send_counts, Out&& out,
                  std::span<const std::size_t> recv_counts, Tail&&... tail) {
  using T = element_of<In>;
  request asked = detail::request_for(comm.state(), on, "all_to_all_v", op_kind::send);
  detail::check_counts(asked, "send_counts", send_counts);
  detail::check_counts(asked, "recv_counts", recv_counts);
  detail::check_sizes(asked, "in", in.size(), detail::total(send_counts));
  detail::check_sizes(asked, "out", out.size(), detail::total(recv_counts));
  std::size_t in_at = 0;
  std::size_t out_at = 0;
  for (std::size_t peer = 0; asked.bad == errc{} && peer < send_counts.size(); ++peer) {
    const int rank = static_cast<int>(peer);
    call to = detail::part_of(op_kind::send, moved_as<T>(), send_counts[peer], sizeof(T), rank);
    to.from = in.data() + in_at;
    call from = detail::part_of(op_kind::recv, moved_as<T>(), recv_counts[peer], sizeof(T), rank);
    from.to = out.data() + out_at;
    in_at += send_counts[peer];
    out_at += recv_counts[peer];
    asked.more.push_back(to);
    asked.more.push_back(from);
  }
  asked.never_in_place = true;
  return detail::initiate_both<In, Out>(std::move(asked), in, out, std::forward<Tail>(tail)...);
}

}  // namespace cohort::nccl

#endif
