// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `mailbox` in `comm/channel.hpp`.

#include <cohort/comm/channel.hpp>
#include <cohort/core/copy.hpp>
#include <cohort/progress/context.hpp>

namespace cohort::comm {

class mailbox::delivery final : public progress::operation {
 public:
  explicit delivery(std::shared_ptr<mailbox> of) noexcept : operation(&run), of_(std::move(of)) {}
  static void* operator new(std::size_t bytes) { return progress::pool::allocate(bytes); }
  static void operator delete(void* block) noexcept {
    progress::pool::deallocate(block, sizeof(delivery));
  }

 private:
  static void run(operation* base, action what) {
    const std::unique_ptr<delivery> self(static_cast<delivery*>(base));
    if (what == action::destroy) {
      self->of_->left_over();
    } else {
      self->of_->deliver();
    }
  }
  std::shared_ptr<mailbox> of_;
};

COHORT_INLINE void mailbox::open(std::weak_ptr<owner> whose, std::shared_ptr<message_rings> rings) {
  {
    const request_source::guard hold(over_.state()->source);
    if (const std::error_code bad = usable()) throw std::system_error(bad, "mailbox");
    owner_ = std::move(whose);
    channel_.open(over_, {}, std::move(rings));
    keep();
  }
  engine().started();
}

COHORT_INLINE void mailbox::send_at_once(int to, unsigned kind,
                                         std::span<const std::byte> message) {
  {
    const request_source::guard hold(over_.state()->source);
    std::error_code why = usable();
    if (!why) why = channel_.send_at_once(to, kind, message);
    if (why) note({happening::sent, to, 0, 0, why});
    keep();
  }
  engine().started();
}

COHORT_INLINE void mailbox::resume() {
  {
    const request_source::guard hold(over_.state()->source);
    if (const std::error_code bad = usable()) throw std::system_error(bad, "mailbox");
    channel_.resume();
  }
  engine().started();
}

COHORT_INLINE void mailbox::close() {
  if (engine().stopped()) return;
  {
    const request_source::guard hold(over_.state()->source);
    channel_.close();
    note({});
  }
  engine().started();
}

COHORT_INLINE void mailbox::received(int from, unsigned kind, std::span<const std::byte> bytes) {
  const std::size_t records = happened_.size();
  const std::size_t before = bytes_.size();
  append_bytes(bytes_, bytes);
  try {
    note({happening::message, from, kind, bytes.size(), {}});
  } catch (...) {  // for want of memory
    if (happened_.size() == records) bytes_.resize(before);
    throw;
  }
}

COHORT_INLINE void mailbox::sent(int to) { note({happening::sent, to, 0, 0, {}}); }

COHORT_INLINE void mailbox::malformed(int from, const char*) {
  note({happening::failed, from, 0, 0, errc::invalid_argument});
}

COHORT_INLINE void mailbox::failed(int peer, bool sends, std::error_code why) {
  note({sends ? happening::sent : happening::failed, peer, 0, 0, why});
}

COHORT_INLINE void mailbox::settled() {
  if (!channel_.receives()) note({});
}

/// Nobody looks after that: what would be posted would stay.
COHORT_INLINE std::error_code mailbox::usable() const noexcept {
  if (engine().stopped()) return errc::engine_stopped;
  const errc bad = over_.state()->source.usable();
  return bad == errc{} ? std::error_code() : make_error_code(bad);
}

COHORT_INLINE void mailbox::keep() {
  if (!self_ && channel_.operations() != 0) self_ = shared_from_this();
}

/// The context ends, and nobody delivers any more.
COHORT_INLINE void mailbox::left_over() {
  if (channel_.operations() != 0) progress::left_to_mpi().add(shared_from_this());
  self_ = nullptr;
}

COHORT_INLINE void mailbox::note(const happening& what) {
  happened_.push_back(what);
  if (delivers_) return;
  engine().post(new delivery(shared_from_this()));
  delivers_ = true;
}

COHORT_INLINE void mailbox::deliver() {
  if (next_ == handed_.size()) {
    const request_source::guard hold(over_.state()->source);
    handed_.clear();
    handed_bytes_.clear();
    handed_.swap(happened_);
    handed_bytes_.swap(bytes_);
    next_ = begin_ = 0;
  }
  const auto again = [this] { engine().post(new delivery(shared_from_this())); };
  try {
    while (next_ != handed_.size()) {
      const auto whose = owner_.lock();
      const happening& what = handed_[next_++];
      begin_ += what.bytes;
      if (whose) hand_on(*whose, what);
    }
  } catch (...) {
    again();
    throw;
  }
  const request_source::guard hold(over_.state()->source);
  delivers_ = !happened_.empty();
  if (delivers_) return again();
  if (channel_.operations() == 0) self_ = nullptr;  // who has called this has a share
}

COHORT_INLINE void mailbox::hand_on(owner& whose, const happening& what) {
  switch (what.what) {
    case happening::nothing:
      return whose.settled();
    case happening::message:
      return whose.received(
          what.rank, what.kind,
          std::span<const std::byte>(handed_bytes_).subspan(begin_ - what.bytes, what.bytes));
    case happening::sent:
      return whose.sent(what.rank, what.why);
    case happening::failed:
      return whose.failed(what.rank, what.why);
  }
}

}  // namespace cohort::comm
