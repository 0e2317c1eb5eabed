// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// `cohort::broadcast` of an object: `cohort::serialized(x)` in the place of a buffer.

#include <cohort/collectives/bodies/call.hpp>
#include <cohort/collectives/broadcast.hpp>
#include <cohort/comm/operation.hpp>
#include <cohort/comm/serialized.hpp>
#include <cohort/mpi/datatype.hpp>
#include <cohort/mpi/post.hpp>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace cohort {
namespace collectives {
template <class T>
struct broadcast_object_body;
}  // namespace collectives

/// Gives every rank the root's object. The root's is serialized before the call returns.
///
/// *Collective over* `comm`, in the same order on all ranks. *Requires* the same root and the same
/// type on all ranks, and an object that lives until the end. *Completion*:
/// `void(std::error_code)`. *Cancellation*: terminal lets go; the object is then left as it is, and
/// the operation goes on. *Errors*: those of `cohort::serialized`, on a rank that cannot take the
/// object, alone. If the root cannot serialize it, the root ends with the code of what was thrown
/// (`errc::invalid_argument` if it has none) and the others with `errc::remote`. *Cost*: two
/// broadcasts, of the size and of the bytes. *Source*: `MPI_Ibcast`. *Example*: `co_await
/// cohort::broadcast(world, cohort::serialized(config), 0);`
template <class T, std::integral Root,
          completion_token_for<void(std::error_code)> Token = default_token>
  requires(!std::is_const_v<T>)
auto broadcast(const communicator& comm, serialized_ref<T> object, Root root,
               Token&& token = Token()) {
  const auto place = collectives::detail::place_in(comm, collectives::detail::to_rank(root));
  return comm::initiate(comm, collectives::broadcast_object_body<T>(object, place), token);
}

namespace collectives {

/// 1. The size, or that the root has none. 2. The bytes. In between the operation keeps its turn:
/// what is started after it is posted after it.
template <class T>
struct broadcast_object_body {
  using signature = void(std::error_code);
  static constexpr const char* name = name_of(op_kind::broadcast).data();
  static constexpr comm::cancels cancellation = comm::cancels::detach;
  static constexpr bool keeps_turn = true;
  static constexpr std::uint64_t no_object = 0;  // any has the number of its type at least

  broadcast_object_body(serialized_ref<T> object, detail::place where_)
      : to(object), where(where_) {
    if (!where.is_root()) return;
    try {
      data = comm::encode_object(object.object());
      size = data.size();
    } catch (const std::system_error& failed) {
      thrown = failed.code();
    } catch (const std::bad_alloc&) {
      thrown = std::make_error_code(std::errc::not_enough_memory);
    } catch (const std::exception& failed) {
      thrown = errc::invalid_argument;
      what = failed.what();
    } catch (...) {
      thrown = errc::invalid_argument;
    }
  }

  [[nodiscard]] errc check(const comm::communicator_base&) const noexcept {
    return where.good_root() ? errc{} : errc::bad_root;
  }
  void explain(failure_text& text) const {
    text.with("root", where.root).with("ranks", where.ranks);
    to.explain(text, size);
    if (!what.empty()) text.note(what);
    if (root_has_none && !where.is_root()) text.note("the root could not serialize its object");
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return data.size(); }
  /// Of a buffer there would be the size of an element.
  [[nodiscard]] std::array<std::int64_t, 4> agreed() const noexcept {
    return {0, 0, 0, where.root};
  }

  int post(comm::poster& post) {
    MPI_Request request = MPI_REQUEST_NULL;
    return post.add(mpi::post::ibcast(&size, 1, mpi::datatype_of<std::uint64_t>(), where.root,
                                      post.native(), &request),
                    request);
  }
  bool advance(comm::poster& post) {
    if (std::exchange(is_sized, true)) {
      if (!where.is_root() && to.takes(size)) post.operation().fail(to.assign(data));
      return false;
    }
    root_has_none = size == no_object;
    if (root_has_none) {
      post.operation().fail(thrown ? thrown : errc::remote);
      return false;
    }
    // A rank that refuses the bytes takes them all the same, for the others cannot know.
    if (!to.takes(size) && !where.is_root()) post.operation().fail(errc::message_too_long);
    data.resize(size);
    // In parts of less than 2 GiB, because MPICH 4.0 reports an error after more.
    for (std::size_t first = 0; first < data.size(); first += mpi::max_int_count) {
      const std::size_t count = std::min(mpi::max_int_count, data.size() - first);
      MPI_Request request = MPI_REQUEST_NULL;
      post.check(post.add(mpi::post::ibcast(data.data() + first, static_cast<MPI_Count>(count),
                                            MPI_BYTE, where.root, post.native(), &request),
                          request));
    }
    return true;
  }
  std::tuple<> finish(std::error_code, const comm::outcome_of_requests&) { return {}; }
  void let_go() noexcept { to.let_go(); }

  comm::object_end<T> to;
  detail::place where;
  std::vector<std::byte> data;
  std::uint64_t size = no_object;
  std::error_code thrown;
  std::string what;
  bool is_sized = false;
  bool root_has_none = false;
};

}  // namespace collectives
}  // namespace cohort
