// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What the ranks print, from the bytes of their sockets to the sinks.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster/scripts.hpp"
#include "cohort/cluster/output/capture.hpp"
#include "cohort/cluster/output/output_queue.hpp"
#include "cohort/cluster/sinks.hpp"
#include "support/catch.hpp"
#include "support/patience.hpp"
#include "support/run.hpp"

// After ours: core/asio.hpp comes before the first header of Asio.
#include <asio/local/connect_pair.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/write.hpp>

namespace {

using namespace cohort;
using namespace cohort::cluster;
using namespace cohort_test;
using Catch::Matchers::ContainsSubstring;
using socket_type = asio::local::stream_protocol::socket;

constexpr auto out = output_stream::out;
constexpr auto err = output_stream::err;

/// Collects lines as text; parts that are not complete end with "…".
class collector {
 public:
  output_sink sink() {
    return [here = data_](const output_line& line) {
      std::string text = rank_name(line.rank) + std::string(name_of(line.stream)) + ":";
      text += line.text;
      if (!line.complete) text += "…";
      const std::lock_guard guard(here->mutex);
      here->dropped += line.dropped;
      here->lines.push_back(std::move(text));
    };
  }
  [[nodiscard]] strings lines() const {
    const std::lock_guard guard(data_->mutex);
    return data_->lines;
  }
  [[nodiscard]] std::uint64_t dropped() const {
    const std::lock_guard guard(data_->mutex);
    return data_->dropped;
  }

 private:
  struct data {
    std::mutex mutex;
    strings lines;
    std::uint64_t dropped = 0;
  };
  std::shared_ptr<data> data_ = std::make_shared<data>();
};

/// A sink that stands still until it is let go.
class gate {
 public:
  output_sink sink() {
    return [here = data_](const output_line&) {
      here->entered = true;
      here->opened.wait();
    };
  }
  [[nodiscard]] bool entered() const { return data_->entered; }
  void open() { data_->open.set_value(); }

 private:
  struct data {
    std::promise<void> open;
    std::shared_future<void> opened = open.get_future().share();
    std::atomic<bool> entered = false;
  };
  std::shared_ptr<data> data_ = std::make_shared<data>();
};

strings assembled(std::size_t longest, const strings& pieces) {
  line_assembler lines(longest);
  strings result;
  const auto deliver = [&](std::string_view text, bool complete) {
    result.push_back(std::string(text) + (complete ? "" : "…"));
  };
  for (const std::string& piece : pieces) lines.push(piece, deliver);
  lines.finish(deliver);
  return result;
}

bool drained(output_queue& queue) {
  asio::io_context io;
  return run(io, queue.drained(cohort_test::patient(20s)));
}

}  // namespace

TEST_CASE("lines are assembled however the bytes arrive") {
  CHECK(assembled(100, {"one\ntwo\n"}) == strings{"one", "two"});
  CHECK(assembled(100, {"o", "n", "e", "\n", "\n", "two"}) == strings{"one", "", "two…"});
  CHECK(assembled(100, {""}).empty());
  CHECK(assembled(100, {"\n"}) == strings{""});
  CHECK(assembled(100, {std::string("a\0\r\xff\nb\n", 7)}) ==
        strings{std::string("a\0\r\xff", 4), "b"});
}

TEST_CASE("overlong lines are cut and nothing of them is lost") {
  CHECK(assembled(3, {"abc\n"}) == strings{"abc"});
  CHECK(assembled(3, {"abc", "\n"}) == strings{"abc"});
  CHECK(assembled(3, {"abcd\n"}) == strings{"abc…", "d"});
  CHECK(assembled(3, {"abcdef"}) == strings{"abc…", "def…"});
  CHECK(assembled(3, {"a", "bcdefg\nh\n"}) == strings{"abc…", "def…", "g", "h"});
  CHECK(assembled(0, {"ab\n"}) == strings{"a…", "b"});
}

TEST_CASE("any cutting of any stream joins to the stream again") {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string stream;
    for (unsigned i = random() % 200; i > 0; --i) stream += random() % 6 == 0 ? '\n' : 'x';
    const std::size_t longest = 1 + random() % 20;
    line_assembler lines(longest);
    std::string joined;
    bool within = true;
    const auto deliver = [&](std::string_view text, bool complete) {
      within = within && text.size() <= longest;
      joined += text;
      if (complete) joined += '\n';
    };
    for (std::string_view rest = stream; !rest.empty();) {
      const auto piece = rest.substr(0, 1 + random() % 30);
      lines.push(piece, deliver);
      rest.remove_prefix(piece.size());
    }
    lines.finish(deliver);
    CHECK(within);
    CHECK(joined == stream);
  }
}

TEST_CASE("what could command a terminal is shown and not sent") {
  CHECK(escaped("plain, ta\tb and ü € 😀") == "plain, ta\tb and ü € 😀");
  CHECK(escaped("\x1b[31mred\x1b]0;title\a") == "\\x1b[31mred\\x1b]0;title\\x07");
  CHECK(escaped(std::string_view("a\0b\r\x7f", 5)) == "a\\x00b\\x0d\\x7f");
  CHECK(escaped("\x9b"
                "31m") == "\\x9b31m");  // CSI as a byte
  CHECK(escaped("\xc2\x9b"
                "31m") == "\\xc2\\x9b31m");             // and as UTF-8
  CHECK(escaped("\xc2\xa0") == "\xc2\xa0");             // the first that is none
  CHECK(escaped("\xc0\x9b") == "\\xc0\\x9b");           // overlong
  CHECK(escaped("\xe0\x80\x9b") == "\\xe0\\x80\\x9b");  // overlong
  CHECK(escaped("\xed\xa0\x80") == "\\xed\\xa0\\x80");  // half a surrogate pair
  CHECK(escaped("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");
  CHECK(escaped("\xe2\x82") == "\\xe2\\x82");  // cut
  CHECK(console_line({3, out, "hi\x1b", true}) == "[3] hi\\x1b\n");
  CHECK(console_line({launcher_rank, err, "no host", true}) == "[launcher] no host\n");
}

TEST_CASE("each stream keeps its order, and every sink gets every line") {
  collector first;
  collector second;
  {
    output_queue queue({first.sink(), second.sink(), drop()});
    for (int i = 0; i < 500; ++i) {
      const std::string text = std::to_string(i);
      queue.push({i % 3, i % 2 == 0 ? out : err, text, true});
    }
  }
  const auto lines = first.lines();
  CHECK(lines.size() == 500);
  CHECK(lines == second.lines());
  CHECK(lines[0] == "0out:0");
  CHECK(lines[499] == "1err:499");
}

TEST_CASE("a slow sink costs the oldest lines, which are counted") {
  gate slow;
  collector lines;
  output_queue queue({slow.sink(), lines.sink()}, 4096);
  queue.push({7, out, "first", true});
  CHECK(eventually([&] { return slow.entered(); }));
  for (int i = 0; i < 1000; ++i) queue.push({i % 2, out, std::to_string(i), true});
  CHECK(queue.has_room());  // nobody is made to wait
  CHECK(queue.dropped() > 900);
  const auto lost = queue.dropped();
  slow.open();
  CHECK(drained(queue));
  const auto got = lines.lines();
  CHECK(got[0] == "7out:first");
  CHECK_THAT(got[1], ContainsSubstring("0out:... "));
  CHECK_THAT(got[1], ContainsSubstring(" lines dropped"));
  CHECK_THAT(got[2], ContainsSubstring("1out:... "));
  CHECK(got.back() == "1out:999");
  CHECK(lines.dropped() == lost);
  CHECK(got.size() + lost == 1001 + 2);  // two notices
  // What is left is without a gap.
  CHECK(got[3].substr(5) == std::to_string(lost));
}

TEST_CASE("it is the bytes that are bounded") {
  gate slow;
  output_queue queue({slow.sink()}, 4096);
  queue.push({0, out, "first", true});
  CHECK(eventually([&] { return slow.entered(); }));
  for (int i = 0; i < 10; ++i) queue.push({0, out, std::string(1500, 'x'), true});
  CHECK(queue.dropped() == 8);
  slow.open();
}

TEST_CASE("a line that is longer than the queue goes through an empty one") {
  collector lines;
  output_queue queue({lines.sink()}, 1000);
  const std::string big(1 << 20, 'x');
  queue.push({0, out, big, true});
  CHECK(drained(queue));
  CHECK(lines.lines() == strings{"0out:" + big});
  CHECK(queue.dropped() == 0);
}

TEST_CASE("with block the readers wait, and nothing of a rank is lost") {
  gate slow;
  collector lines;
  output_queue queue({slow.sink(), lines.sink()}, 4096, overflow_policy::block);
  queue.push({0, out, "first", true});
  CHECK(eventually([&] { return slow.entered(); }));
  int taken = 0;
  asio::io_context io;
  const auto feed = [&]() -> asio::awaitable<void> {
    for (; taken < 1000; ++taken) {
      if (!queue.has_room()) co_await queue.room();
      queue.push({0, out, std::to_string(taken), true});
    }
  };
  asio::co_spawn(io, feed(), asio::detached);
  while (io.poll() > 0) {
  }
  CHECK(taken < 200);
  CHECK_FALSE(queue.has_room());
  const int stopped_at = taken;
  queue.push({launcher_rank, err, "noise", true});  // whoever reads it cannot wait
  CHECK(queue.dropped() == 1);
  slow.open();
  io.run();
  CHECK(taken == 1000);
  CHECK(taken > stopped_at);
  CHECK(drained(queue));
  auto got = lines.lines();
  CHECK(std::erase(got, "launchererr:... 1 line dropped") == 1);
  CHECK(got.size() == 1001);
  CHECK(got.back() == "0out:999");
}

TEST_CASE("a sink that throws is told once and costs the others nothing") {
  const log::capture messages;
  collector lines;
  int calls = 0;
  {
    output_queue queue({[&](const output_line&) {
                          ++calls;
                          throw std::runtime_error("disk full");
                        },
                        lines.sink()});
    for (int i = 0; i < 5; ++i) queue.push({0, out, std::to_string(i), true});
  }
  CHECK(calls == 5);
  CHECK(lines.lines().size() == 5);
  const std::string told = messages.text();
  CHECK(told.find("disk full") != std::string::npos);
  CHECK(told.find("disk full") == told.rfind("disk full"));
}

TEST_CASE("waiting for the sinks has a bound") {
  gate slow;
  output_queue queue({slow.sink()});
  asio::io_context io;
  CHECK(run(io, queue.drained(0s)));  // nothing to wait for
  queue.push({0, out, "x", true});
  CHECK_FALSE(run(io, queue.drained(20ms)));
  slow.open();
  CHECK(run(io, queue.drained(cohort_test::patient(20s))));
}

TEST_CASE("the destructor waits for a sink only as long as was said") {
  const log::capture messages;
  gate slow;
  collector lines;
  {
    output_queue queue({slow.sink(), lines.sink()}, 4096, overflow_policy::drop_oldest, 10ms);
    queue.push({0, out, "x", true});
    CHECK(eventually([&] { return slow.entered(); }));
    queue.push({0, out, "y", true});
    queue.push({0, out, "z", true});
  }
  CHECK(messages.contains("lost with it: 2"));
  slow.open();  // the thread ends by itself, with the line that it has
  CHECK(eventually([&] { return lines.lines() == strings{"0out:x"}; }));
}

TEST_CASE("bounds as long as there is have no end") {
  constexpr auto longest = output_queue::duration::max();
  gate slow;
  collector lines;
  std::thread opener;
  {
    output_queue queue({slow.sink(), lines.sink()}, 4096, overflow_policy::drop_oldest, longest);
    queue.push({0, out, "x", true});
    asio::io_context io;
    bool done = false;
    asio::co_spawn(io, queue.drained(longest), [&](std::exception_ptr, bool all) { done = all; });
    for (int i = 0; i < 20; ++i) io.run_one_for(5ms);
    CHECK_FALSE(done);
    CHECK(eventually([&] { return slow.entered(); }));
    queue.push({0, out, "y", true});
    opener = std::thread([&] {
      std::this_thread::sleep_for(100ms);
      slow.open();
    });
  }  // waits
  CHECK(lines.lines() == strings{"0out:x", "0out:y"});
  opener.join();
}

TEST_CASE("a loop that is destroyed while somebody waits leaves the queue in order") {
  gate slow;
  collector lines;
  output_queue queue({slow.sink(), lines.sink()}, 100, overflow_policy::block);
  queue.push({0, out, std::string(200, 'x'), true});
  CHECK(eventually([&] { return slow.entered(); }));
  queue.push({0, out, std::string(200, 'y'), true});
  {
    asio::io_context io;
    asio::co_spawn(io, queue.room(), asio::detached);
    asio::co_spawn(io, queue.drained(1h), asio::detached);
    while (io.poll() > 0) {
    }
  }
  slow.open();
  CHECK(drained(queue));
  CHECK(lines.lines().size() == 2);
}

TEST_CASE("a wake-up that went with its loop does not keep later ones away") {
  gate slow;
  gate slower;
  collector lines;
  const auto only_z = [inner = slower.sink()](const output_line& line) {
    if (line.text == "z") inner(line);
  };
  output_queue queue({slow.sink(), only_z, lines.sink()}, 100, overflow_policy::block);
  {
    asio::io_context io;
    queue.push({0, out, std::string(200, 'x'), true});
    asio::co_spawn(io, queue.drained(1h), asio::detached);
    while (io.poll() > 0) {
    }
    slow.open();
    // Then the thread has told the waiter, whose loop does not run.
    CHECK(eventually([&] {
      asio::io_context other;
      return run(other, queue.drained(0s));
    }));
  }
  queue.push({0, out, "z", true});
  CHECK(eventually([&] { return slower.entered(); }));
  asio::io_context io;
  bool done = false;
  asio::co_spawn(io, queue.drained(1h), [&](std::exception_ptr, bool empty) { done = empty; });
  while (io.poll() > 0) {
  }
  CHECK_FALSE(done);
  slower.open();
  CHECK(eventually([&] { return io.poll(), done; }));
}

TEST_CASE("sockets are read to their ends, with the last partial line") {
  collector lines;
  output_queue queue({lines.sink()});
  asio::io_context io;
  std::array<socket_type, 2> ours{socket_type(io), socket_type(io)};
  std::array<socket_type, 2> theirs{socket_type(io), socket_type(io)};
  for (std::size_t i = 0; i < 2; ++i) asio::local::connect_pair(ours[i], theirs[i]);
  asio::co_spawn(io, read_output(std::move(ours[0]), 2, out, queue), asio::detached);
  asio::co_spawn(io, read_output(std::move(ours[1]), 2, err, queue), asio::detached);
  const auto write = [&](std::size_t which, std::string_view text) {
    asio::write(theirs[which], asio::buffer(text));
    io.poll();
  };
  write(0, "par");
  write(1, "warning\n");
  write(0, "tial\nlast words");
  theirs[0].close();
  write(1, "not ended");
  theirs[1].close();
  io.run();
  CHECK(drained(queue));
  auto got = lines.lines();
  std::ranges::stable_sort(got, {}, [](const std::string& line) { return line.substr(0, 4); });
  CHECK(got == strings{"2err:warning", "2err:not ended…", "2out:partial", "2out:last words…"});
}

TEST_CASE("a line of a mebibyte is whole where the bound allows it") {
  const std::string big(1 << 20, 'm');
  for (const std::size_t longest : {big.size(), default_longest_line}) {
    collector lines;
    output_queue queue({lines.sink()}, 8 << 20, overflow_policy::block);
    asio::io_context io;
    socket_type ours(io);
    socket_type theirs(io);
    asio::local::connect_pair(ours, theirs);
    asio::co_spawn(io, read_output(std::move(ours), 0, out, queue, longest), asio::detached);
    std::thread writer([&] {
      asio::write(theirs, asio::buffer(big + "\nafter\n"));
      theirs.close();
    });
    io.run();
    writer.join();
    CHECK(drained(queue));
    const auto got = lines.lines();
    if (longest == big.size()) {
      CHECK(got == strings{"0out:" + big, "0out:after"});
    } else {
      CHECK(got.size() == 16 + 1);
      CHECK(got[0] == "0out:" + big.substr(0, longest) + "…");
      CHECK(got[15] == "0out:" + big.substr(0, longest));
    }
  }
}

TEST_CASE("a rank that prints faster than a sink writes waits with block") {
  gate slow;
  collector lines;
  output_queue queue({slow.sink(), lines.sink()}, 64 * 1024, overflow_policy::block);
  asio::io_context io;
  socket_type ours(io);
  socket_type theirs(io);
  asio::local::connect_pair(ours, theirs);
  asio::co_spawn(io, read_output(std::move(ours), 0, out, queue), asio::detached);
  std::atomic<bool> written = false;
  std::thread writer([&] {
    asio::write(theirs, asio::buffer(std::string(100, 'w') + "\n"));
    for (int i = 0; i < 5000; ++i) asio::write(theirs, asio::buffer("line of the rank\n", 17));
    written = true;
    theirs.close();
  });
  CHECK(eventually([&] { return io.poll(), !queue.has_room(); }));
  for (int i = 0; i < 60 && !written; ++i) {  // time enough for a reader that would not wait
    io.poll();
    std::this_thread::sleep_for(5ms);
  }
  CHECK_FALSE(written);
  slow.open();
  io.run();
  writer.join();
  CHECK(drained(queue));
  CHECK(queue.dropped() == 0);
  CHECK(lines.lines().size() == 5001);
}

TEST_CASE("reading that is cancelled delivers what it has") {
  collector lines;
  output_queue queue({lines.sink()});
  asio::io_context io;
  socket_type ours(io);
  socket_type theirs(io);
  asio::local::connect_pair(ours, theirs);
  asio::cancellation_signal stop;
  bool ended = false;
  asio::co_spawn(io, read_output(std::move(ours), 0, out, queue),
                 asio::bind_cancellation_slot(stop.slot(), [&](std::exception_ptr failed) {
                   CHECK_FALSE(failed);
                   ended = true;
                 }));
  asio::write(theirs, asio::buffer("half", 4));
  while (io.poll() > 0) {
  }
  stop.emit(asio::cancellation_type::terminal);
  io.run();
  CHECK(ended);
  CHECK(drained(queue));
  CHECK(lines.lines() == strings{"0out:half…"});
}

TEST_CASE("files get the bytes as they were written, one for each rank and stream") {
  folder here;
  const auto zero_out = here.path("rank0.out%");
  const auto zero_err = here.path("rank0.err%");
  {
    output_queue queue({to_files(here.where() + "/rank%r.%s%%")});
    queue.push({0, out, std::string_view("a\x1b\0b", 4), true});
    queue.push({0, out, "cut", false});
    queue.push({0, out, "rest", true});
    queue.push({0, out, "end", false});
    queue.push({0, err, "oops", true});
  }
  CHECK(contents(zero_out) == std::string("a\x1b\0b\ncutrest\nend", 16));
  CHECK(contents(zero_err) == "oops\n");
}

TEST_CASE("ranks may share a file, and a run begins it anew") {
  folder here;
  const auto all = here.path("all");
  for (int run = 0; run < 2; ++run) {
    output_queue queue({to_files(all)});
    queue.push({0, out, "zero", true});
    queue.push({launcher_rank, err, "launcher", true});
  }
  CHECK(contents(all) == "zero\nlauncher\n");
}

TEST_CASE("more ranks than descriptors still get a file each") {
  folder here;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  std::vector<std::string> files;
  for (int rank = 0; rank < 60; ++rank) files.push_back(here.path("r" + std::to_string(rank)));
  {
    output_queue queue({to_files(here.where() + "/r%r")});
    rlimit few = before;
    few.rlim_cur = 40;
    ::setrlimit(RLIMIT_NOFILE, &few);
    for (const char* text : {"first", "second"}) {
      for (int rank = 0; rank < 60; ++rank) queue.push({rank, out, text, true});
    }
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  for (const std::string& file : files) {
    CAPTURE(file);
    CHECK(contents(file) == "first\nsecond\n");
  }
}

TEST_CASE("a pattern or a folder that is wrong is told") {
  CHECK_THROWS_WITH(to_files("out.%d"), ContainsSubstring("only %r, %s and %%"));
  CHECK_THROWS_WITH(to_files("out.%"), ContainsSubstring("only %r, %s and %%"));
  const log::capture messages;
  {
    output_queue queue({to_files("/no/such/folder/%r")});
    queue.push({3, out, "x", true});
  }
  CHECK(messages.contains("/no/such/folder/3"));
}

TEST_CASE("the console writes to the stream that the rank has written to") {
  folder here;
  const auto to_out = here.path("out");
  const auto to_err = here.path("err");
  std::fflush(nullptr);
  const int keep_out = ::dup(1);
  const int keep_err = ::dup(2);
  const int file_out = ::open(to_out.c_str(), O_CREAT | O_WRONLY, 0600);
  const int file_err = ::open(to_err.c_str(), O_CREAT | O_WRONLY, 0600);
  ::dup2(file_out, 1);
  ::dup2(file_err, 2);
  console()({0, out, "fine\a", true});
  console()({1, err, "bad", true});
  std::fflush(nullptr);
  ::dup2(keep_out, 1);
  ::dup2(keep_err, 2);
  for (const int fd : {keep_out, keep_err, file_out, file_err}) ::close(fd);
  CHECK(contents(to_out) == "[0] fine\\x07\n");
  CHECK(contents(to_err) == "[1] bad\n");
}
