// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file The bodies of the grouped verbs that gather and scatter.

#include <cohort/coordinator/verbs/bundle_verbs.hpp>
#include <cohort/core/copy.hpp>

#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

namespace cohort::coordination {

/// The members of a bundle travel as one block of bytes: how many elements of each, then these.
struct bundle_gather_body : submitting_body {
  using signature = void(std::exception_ptr, gathered_bundle);

  bundle_gather_body(const bundle& from, const call_options& options_, std::source_location where)
      : submitting_body(operation_name(std::string(from.name()), where), options_) {
    if (bundle_access::on_device(from)) {
      located.emplace(from, result);
      return;
    }
    std::size_t end = from.size() * sizeof(std::uint64_t);
    for (const bundle_access::member& one : bundle_access::members(from)) end += one.what.bytes();
    mine.resize(end);
    std::size_t header = 0;
    end = from.size() * sizeof(std::uint64_t);
    for (const bundle_access::member& one : bundle_access::members(from)) {
      const std::uint64_t count = one.what.count;
      std::memcpy(mine.data() + header, &count, sizeof(count));
      header += sizeof(count);
      copy_bytes(mine.data() + end, one.what.in, one.what.bytes());
      end += one.what.bytes();
      result.add(one.name, *one.what.kernels);
    }
  }

  void describe(task& of, protocol::signature& sig, const instance&) {
    sig.kind = op_kind::all_gather;
    sig.detail = 3;
    describe_element<std::byte>(sig);
    of.sizes.assign(1, static_cast<std::int64_t>(mine.size()));
    of.row_bytes = 1;
    if (located) return describe_located(of, sig);
    for (std::size_t i = 0; i < result.names_.size(); ++i) {  // numbers may differ
      append_member(sig.members, {result.names_[i], result.kinds_[i]->element, 0});
    }
    if (result.names_.empty()) {
      of.fail(errc::invalid_argument, "an empty bundle");
    }
    of.first.in = mine.data();
    of.first.count = mine.size();
    of.first.kernels = &kernels_of<std::byte>;
    of.context = this;
    of.make_result = [](task& self, std::span<const std::int64_t> rows) -> void* {
      auto& body = *static_cast<bundle_gather_body*>(self.context);
      body.sizes.assign(rows.begin(), rows.end());
      body.result.all_.resize(
          static_cast<std::size_t>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0})));
      return body.result.all_.data();
    };
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    if (!why && !located && !split()) {
      why = std::make_exception_ptr(error(errc::size_mismatch, "a block of a bundle"));
    }
    std::forward<Handler>(handler)(std::move(why), std::move(result));
  }

  [[nodiscard]] bool split() {
    const std::size_t members = result.names_.size();
    result.pieces_.assign(members, {});
    std::size_t begin = 0;
    for (const std::size_t size : sizes) {
      const std::size_t end = begin + size;
      std::size_t at = begin + members * sizeof(std::uint64_t);
      for (std::size_t i = 0; i < members; ++i) {
        std::uint64_t count = 0;
        if (size != 0) {  // a rank that has joined brings nothing
          if (at > end) return false;
          std::memcpy(&count, result.all_.data() + begin + i * sizeof(count), sizeof(count));
          if (count > (end - at) / result.kinds_[i]->size) return false;
        }
        const auto bytes = static_cast<std::size_t>(count) * result.kinds_[i]->size;
        result.pieces_[i].push_back({at, bytes});
        at += bytes;
      }
      if (size != 0 && at != end) return false;
      begin = end;
    }
    return true;
  }

  /// Each member by itself: the ranks tell each other how much they have of each.
  void describe_located(task& of, protocol::signature& sig) {
    const auto& members = bundle_access::members(located->from);
    of.row_counts = members.size();
    of.sizes.clear();
    for (const bundle_access::member& one : members) {
      append_member(sig.members, {one.name, one.what.kernels->element, 0});
      of.sizes.push_back(static_cast<std::int64_t>(one.what.bytes()));
    }
    located->describe_inputs(of);
    of.context = this;
    of.make_result = [](task& self, std::span<const std::int64_t> rows) -> void* {
      auto& body = *static_cast<bundle_gather_body*>(self.context);
      return body.located->gather(self, body.result, rows);
    };
  }

  std::vector<std::byte> mine;
  std::vector<std::size_t> sizes;
  gathered_bundle result;
  std::optional<located_members> located;
};

/// What a bundle says of its members where all ranks have the same numbers; fails an empty one.
inline void describe_members(task& of, signature& sig, const bundle& from) {
  for (const bundle_access::member& one : bundle_access::members(from)) {
    append_member(sig.members, {one.name, one.what.kernels->element, one.what.count});
  }
  if (from.size() == 0) {
    of.fail(errc::invalid_argument, "an empty bundle");
  }
}

/// Blocks of equal size: each rank's go to one root, or one for each rank goes to it. The members
/// travel as one block of bytes.
template <op_kind Kind>
struct bundle_block_body : submitting_body {
  using signature = void(std::exception_ptr, gathered_bundle);

  bundle_block_body(bundle from, const call_options& options_, int root_,
                    std::source_location where)
      : submitting_body(operation_name(std::string(from.name()), where), options_),
        members(std::move(from)),
        root(root_) {}

  void describe(task& of, coordination::signature& sig, const instance& where) {
    const auto ranks = static_cast<std::size_t>(where.size());
    const std::size_t parts = Kind == op_kind::gather ? 1 : ranks;
    sig.kind = Kind;
    sig.detail = 3;
    describe_element<std::byte>(sig);
    describe_members(of, sig, members);
    if (Kind == op_kind::gather) require_root(of, sig, root, where);
    const bool located = bundle_access::on_device(members);
    std::size_t block = 0;
    for (const bundle_access::member& one : bundle_access::members(members)) {
      if (one.what.count % parts != 0) {
        of.fail(errc::size_mismatch, "'" + one.name + "' has " + std::to_string(one.what.count) +
                                         " elements for " + std::to_string(ranks) + " ranks");
      }
      if (!located) result.add(one.name, *one.what.kernels);
      block += one.what.count / parts * one.what.kernels->size;
    }
    if (located) return describe_located(of, sig, where, block);
    mine.resize(parts * block);
    std::size_t at = 0;
    for (std::size_t part = 0; part < parts; ++part) {
      for (const bundle_access::member& one : bundle_access::members(members)) {
        const std::size_t bytes = one.what.count / parts * one.what.kernels->size;
        const auto* from = static_cast<const std::byte*>(one.what.in);
        copy_bytes(mine.data() + at, from + part * bytes, bytes);
        at += bytes;
      }
    }
    of.first.in = mine.data();
    of.first.count = mine.size();
    of.first.kernels = &kernels_of<std::byte>;
    if constexpr (Kind == op_kind::gather) {
      sig.dimensions = shape{static_cast<std::int64_t>(block)};
      if (where.rank() != root) return;
    } else {
      of.sizes.assign(ranks, static_cast<std::int64_t>(block));
      of.row_bytes = 1;
      of.context = this;
      of.make_result = [](task& self, std::span<const std::int64_t>) -> void* {
        return static_cast<bundle_block_body*>(self.context)->result.bytes().data();
      };
    }
    result.bytes().resize(ranks * block);
    of.first.out = result.bytes().data();
    at = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::size_t index = 0;
      for (const bundle_access::member& one : bundle_access::members(members)) {
        const std::size_t bytes = one.what.count / parts * one.what.kernels->size;
        result.put(index++, at, bytes);
        at += bytes;
      }
    }
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::forward<Handler>(handler)(std::move(why), std::move(result));
  }

  /// Each member by itself.
  void describe_located(task& of, coordination::signature& sig, const instance& where,
                        std::size_t block) {
    const auto ranks = static_cast<std::size_t>(where.size());
    const located_members all(members, result);
    all.describe_inputs(of);
    if constexpr (Kind == op_kind::gather) {
      sig.detail = 0;
      sig.dimensions = shape{static_cast<std::int64_t>(block)};
      if (where.rank() != root) return;
      all.make_all(of, result, ranks, [](std::size_t count) { return count; });
    } else {
      sig.flags |= signature_flag::needs_all;
      of.sizes.assign(ranks, static_cast<std::int64_t>(block));
      of.row_bytes = 1;
      all.make_all(of, result, ranks, [ranks](std::size_t count) { return count / ranks; });
      of.make_result = [](task& self, std::span<const std::int64_t>) { return self.first.out; };
    }
  }

  bundle members;
  int root;
  std::vector<std::byte> mine;
  gathered_bundle result;
};

/// The root's members are cut into blocks, one for each rank, which come into the members of `to`.
struct bundle_scatter_body : submitting_body {
  bundle_scatter_body(bundle from_, bundle to_, const call_options& options_, int root_,
                      std::source_location where)
      : submitting_body(operation_name(std::string(to_.name()), where), options_),
        from(std::move(from_)),
        to(std::move(to_)),
        root(root_) {}

  void describe(task& of, coordination::signature& sig, const instance& where) {
    const auto ranks = static_cast<std::size_t>(where.size());
    sig.kind = op_kind::scatter;
    sig.detail = 3;
    describe_element<std::byte>(sig);
    describe_members(of, sig, to);
    require_root(of, sig, root, where);
    located = bundle_access::on_device(to);
    std::size_t block = 0;
    for (const bundle_access::member& one : bundle_access::members(to)) block += one.what.bytes();
    sig.dimensions = shape{static_cast<std::int64_t>(block * ranks)};
    if (located) describe_outputs(of, sig, ranks);
    if (!located) {
      come.resize(block);
      of.first.out = come.data();
      of.first.count = block * ranks;
      of.first.kernels = &kernels_of<std::byte>;
    }
    if (where.rank() != root) return;
    if (!located) {
      sent.resize(block * ranks);
      of.first.in = sent.data();
    }
    const auto& out = bundle_access::members(to);
    const auto& in = bundle_access::members(from);
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (i < in.size() && in[i].name == out[i].name &&
          in[i].what.kernels->element == out[i].what.kernels->element &&
          in[i].is_located() == located && in[i].what.count == out[i].what.count * ranks) {
        continue;
      }
      of.fail(errc::size_mismatch,
              "'" + out[i].name + "' of " + std::to_string(out[i].what.count) + " elements on " +
                  std::to_string(ranks) + " ranks: the root's bundle has no " +
                  std::to_string(out[i].what.count * ranks) + " of this type in this place");
      return;
    }
    if (located) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        of[i].in = in[i].what.in;
        of.use_device().buffers.push_back(in[i].on_device);
      }
      return;
    }
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        const std::size_t bytes = out[i].what.bytes();
        const auto* part = static_cast<const std::byte*>(in[i].what.in) + rank * bytes;
        copy_bytes(sent.data() + at, part, bytes);
        at += bytes;
      }
    }
  }
  template <class Handler>
  void finish(Handler&& handler, std::exception_ptr why, std::uint64_t) {
    std::size_t at = 0;
    for (const bundle_access::member& one : bundle_access::members(to)) {
      if (why || located) break;
      copy_bytes(one.what.out, come.data() + at, one.what.bytes());
      at += one.what.bytes();
    }
    std::forward<Handler>(handler)(std::move(why));
  }

  /// Each member by itself.
  void describe_outputs(task& of, coordination::signature& sig, std::size_t ranks) const {
    sig.flags |= signature_flag::needs_all;
    std::size_t index = 0;
    for (const bundle_access::member& one : bundle_access::members(to)) {
      of.use_device().buffers.push_back(one.on_device);
      tensor what = one.what;
      what.in = nullptr;
      what.count *= ranks;
      of.put(index++, what);
    }
  }

  bundle from;
  bundle to;
  int root;
  bool located = false;
  std::vector<std::byte> sent;
  std::vector<std::byte> come;
};

}  // namespace cohort::coordination
