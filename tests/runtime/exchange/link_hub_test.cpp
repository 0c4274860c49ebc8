#include "lockstep/runtime/exchange/link_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
// C library headers, for their types.
#include <sys/resource.h>
#include <sys/socket.h>

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/exchange/exchange_engine.h"
#include "lockstep/runtime/exchange/link_handshake.h"
#include "lockstep/runtime/exchange/make_plan.h"
#include "lockstep/tests/runtime/exchange/plan_memory.h"

namespace lockstep {
namespace {

using Clock = LinkHub::Clock;

Clock::time_point soon() {
  return Clock::now() + std::chrono::milliseconds(300);
}
Clock::time_point much_later() {
  return Clock::now() + std::chrono::seconds(60);
}

LinkHub::Options options(int rank) {
  return {.rank = rank, .token = JobToken::from_text("secret"), .generation = 3, .host = "127.0.0.1"};
}

/// The hubs of several ranks, which know each other.
std::vector<std::unique_ptr<LinkHub>> hubs(std::vector<LinkHub::Options> of_ranks) {
  std::vector<std::unique_ptr<LinkHub>> all;
  std::vector<LinkAddress> addresses;
  for (auto& of_rank : of_ranks) {
    all.push_back(std::make_unique<LinkHub>(std::move(of_rank)));
    addresses.push_back(all.back()->address());
  }
  for (const auto& hub : all) hub->set_peers(addresses);
  return all;
}

using Link = std::unique_ptr<ExchangeLink>;

/// Connects ranks 0 and 1.
std::pair<Link, Link> connected(LinkHub& low, LinkHub& high, uint32_t channel = 0) {
  auto first = std::async(std::launch::async, [&] { return low.connect(1, channel, much_later()); });
  auto second = high.connect(0, channel, much_later());
  return {first.get(), std::move(second)};
}

/// Returns the byte that arrives at the other end if one is sent.
int carried(ExchangeLink& from, ExchangeLink& to) {
  const std::vector<uint8_t> sent{42};
  const std::span<const uint8_t> part(sent);
  from.send({{part}});
  std::vector<uint8_t> received(1);
  for (int i = 0; i < 1000 && to.receive(received) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return received[0];
}

template <typename Function>
std::optional<std::errc> error_of(const Function& function) {
  try {
    function();
  } catch (const std::system_error& error) {
    return static_cast<std::errc>(error.code().value());
  }
  return std::nullopt;
}

[[noreturn]] void throw_reset() {
  throw std::system_error(std::make_error_code(std::errc::connection_reset));
}

TEST(LinkHub, ConnectsRanksOfOneMachineThroughSharedMemory) {
  const auto ranks = hubs({options(0), options(1)});
  const auto [low, high] = connected(*ranks[0], *ranks[1]);
  EXPECT_STREQ(low->transport(), "shared memory");
  EXPECT_STREQ(high->transport(), "shared memory");
  EXPECT_EQ(carried(*low, *high), 42);
  EXPECT_EQ(carried(*high, *low), 42);
}

TEST(LinkHub, ConnectsOthersOverTcp) {
  for (const int without : {0, 1}) {
    for (const bool encrypts : {true, false}) {
      std::vector<LinkHub::Options> both{options(0), options(1)};
      both[static_cast<size_t>(without)].uses_shared_memory = false;
      for (auto& of_rank : both) of_rank.encrypts = encrypts;
      const auto ranks = hubs(both);
      const auto [low, high] = connected(*ranks[0], *ranks[1]);
      EXPECT_STREQ(low->transport(), encrypts ? "tls" : "tcp");
      EXPECT_STREQ(high->transport(), encrypts ? "tls" : "tcp");
      EXPECT_EQ(carried(*low, *high), 42);
      EXPECT_EQ(carried(*high, *low), 42);
    }
  }
}

TEST(LinkHub, KeepsChannelsApart) {
  const auto ranks = hubs({options(0), options(1)});
  auto second = std::async(std::launch::async, [&] { return ranks[0]->connect(1, 8, much_later()); });
  const auto other_first = ranks[1]->connect(0, 7, much_later());
  const auto other_second = ranks[1]->connect(0, 8, much_later());
  const auto first = ranks[0]->connect(1, 7, much_later());
  EXPECT_EQ(carried(*first, *other_first), 42);
  EXPECT_EQ(carried(*other_second, *second.get()), 42);
}

// As if /dev/shm were full.
TEST(LinkHub, DoesWithoutSharedMemoryIfThereIsNone) {
  std::string message;
  std::vector<LinkHub::Options> both{options(0), options(1)};
  both[1].log = [&](const std::string& text) { message = text; };
  const auto ranks = hubs(both);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{4096, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto [low, high] = connected(*ranks[0], *ranks[1]);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_STREQ(low->transport(), "tcp");
  EXPECT_EQ(carried(*low, *high), 42);
  EXPECT_EQ(
      message,
      "no shared memory for rank 0 (make shared memory: File too large), so values go through a socket");
}

TEST(LinkHub, ARankWithAnotherTokenIsRefused) {
  for (const bool uses_shared_memory : {true, false}) {
    std::vector<LinkHub::Options> both{options(0), options(1)};
    for (auto& of_rank : both) of_rank.uses_shared_memory = uses_shared_memory;
    both[1].token = JobToken::from_text("another");
    const auto ranks = hubs(both);
    EXPECT_EQ(error_of([&] { ranks[1]->connect(0, 0, much_later()); }), std::errc::permission_denied);
    EXPECT_EQ(error_of([&] { ranks[0]->connect(1, 0, soon()); }), std::errc::timed_out);
    EXPECT_EQ(ranks[0]->num_rejected(), 1u);
  }
}

TEST(LinkHub, ARankOfAnotherStartIsRefused) {
  for (const bool uses_shared_memory : {true, false}) {
    std::vector<LinkHub::Options> both{options(0), options(1)};
    for (auto& of_rank : both) of_rank.uses_shared_memory = uses_shared_memory;
    both[1].generation = 2;
    const auto ranks = hubs(both);
    EXPECT_EQ(error_of([&] { ranks[1]->connect(0, 0, much_later()); }), std::errc::permission_denied);
  }
}

TEST(LinkHub, ARankThatDoesNotCallIsWaitedForUntilTheDeadline) {
  const auto ranks = hubs({options(0), options(1)});
  EXPECT_EQ(error_of([&] { ranks[0]->connect(1, 0, soon()); }), std::errc::timed_out);
}

TEST(LinkHub, AnInterruptEndsTheWait) {
  const auto ranks = hubs({options(0), options(1)});
  auto waiting = std::async(std::launch::async,
                            [&] { return error_of([&] { ranks[0]->connect(1, 0, much_later()); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ranks[0]->interrupt();
  EXPECT_EQ(waiting.get(), std::errc::operation_canceled);
}

// It accepts connections, but its thread no longer answers.
TEST(LinkHub, ARankThatHasGivenUpIsNotWaitedFor) {
  const auto ranks = hubs({options(0), options(1)});
  ranks[0]->interrupt();
  const auto begin = Clock::now();
  EXPECT_NE(error_of([&] { ranks[1]->connect(0, 0, much_later()); }), std::nullopt);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(20));
}

TEST(LinkHub, AnInterruptEndsACallToARankThatDoesNotAnswer) {
  const auto ranks = hubs({options(0), options(1)});
  TcpListener silent("127.0.0.1", 0);
  ASSERT_EQ(listen(silent.descriptor(), 1), 0);
  ranks[1]->set_peers({{"127.0.0.1", silent.port()}, ranks[1]->address()});
  auto waiting = std::async(std::launch::async,
                            [&] { return error_of([&] { ranks[1]->connect(0, 0, much_later()); }); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ranks[1]->interrupt();
  EXPECT_EQ(waiting.get(), std::errc::operation_canceled);
}

// Neither someone who says nothing nor someone who says other things keeps ranks from connecting.
TEST(LinkHub, DropsForeignConnections) {
  for (const bool encrypts : {true, false}) {
    std::vector<LinkHub::Options> both{options(0), options(1)};
    for (auto& of_rank : both) of_rank.encrypts = encrypts;
    const auto ranks = hubs(both);
    const int port = ranks[0]->address().port;
    auto silent = StreamSocket::connect("127.0.0.1", port, much_later());
    auto other = StreamSocket::connect("127.0.0.1", port, much_later());
    const std::vector<uint8_t> garbage(1000, 'x');
    other.send({garbage}, much_later());
    // A greeting or an alert may come first.
    std::vector<uint8_t> all(1000);
    EXPECT_EQ(error_of([&] {
                if (!other.receive({all}, much_later())) throw_reset();
              }),
              std::errc::connection_reset);
    const auto [low, high] = connected(*ranks[0], *ranks[1]);
    EXPECT_EQ(carried(*low, *high), 42);
    EXPECT_EQ(ranks[0]->num_rejected(), 1u);
  }
}

TEST(LinkHub, LetsRanksInWhileStrangersFillTheirPlaces) {
  std::vector<LinkHub::Options> both{options(0), options(1)};
  for (auto& of_rank : both) of_rank.uses_shared_memory = false;
  const auto ranks = hubs(both);
  std::vector<StreamSocket> strangers;
  for (int i = 0; i < 300; ++i)
    strangers.push_back(StreamSocket::connect("127.0.0.1", ranks[0]->address().port, much_later()));
  const auto [low, high] = connected(*ranks[0], *ranks[1]);
  EXPECT_EQ(carried(*low, *high), 42);
  EXPECT_GE(ranks[0]->num_rejected(), 200u);
}

// One encrypts, and the other one does not.
TEST(LinkHub, RanksMustAgreeOnEncryption) {
  for (const int without : {0, 1}) {
    std::vector<LinkHub::Options> both{options(0), options(1)};
    for (auto& of_rank : both) of_rank.uses_shared_memory = false;
    both[static_cast<size_t>(without)].encrypts = false;
    const auto ranks = hubs(both);
    EXPECT_NE(error_of([&] { ranks[1]->connect(0, 0, soon()); }), std::nullopt);
    EXPECT_EQ(error_of([&] { ranks[0]->connect(1, 0, soon()); }), std::errc::timed_out);
  }
}

TEST(LinkHub, CarriesTheExchangesOfManyRanks) {
  constexpr int kSize = 6;
  std::vector<LinkHub::Options> all;
  for (int rank = 0; rank < kSize; ++rank) {
    all.push_back(options(rank));
    all.back().uses_shared_memory = rank % 3 != 0;  // the others are on other machines
  }
  const auto ranks = hubs(all);
  std::vector<std::future<std::vector<double>>> sums;
  for (int rank = 0; rank < kSize; ++rank) {
    sums.push_back(std::async(std::launch::async, [&, rank] {
      ExchangeEngine engine(
          {.rank = rank, .size = kSize, .generation = 1, .connect = [&](int peer, auto deadline) {
             return ranks[static_cast<size_t>(rank)]->connect(peer, 1, deadline);
           }});
      const auto plan = make_plan(CollectiveKind::kAllReduce, PlanAlgorithm::kHalving, rank, kSize);
      const PlanMemory memory(plan, std::vector<double>(10'000, rank));
      for (uint64_t sequence = 0; sequence < 3; ++sequence)
        engine.run(call_of(plan, memory, sequence), much_later());
      return memory.values();
    }));
  }
  for (auto& sum : sums) EXPECT_EQ(sum.get(), std::vector<double>(10'000, 15 * kSize * kSize));
}

TEST(LinkHandshake, ReadsWhatWasSaid) {
  const auto token = JobToken::from_text("secret");
  const auto greeting = make_link_greeting();
  ASSERT_EQ(greeting.size(), kLinkGreetingBytes);
  const LinkHello hello{.from = 1, .to = 2, .channel = 3, .generation = 4, .has_shared_memory = true};
  auto bytes = make_link_hello(token, hello, greeting);
  ASSERT_EQ(bytes.size(), kLinkHelloBytes);
  EXPECT_EQ(read_link_hello(token, greeting, bytes), hello);
  // A recorded hello proves nothing to someone who has sent another greeting.
  EXPECT_EQ(read_link_hello(token, make_link_greeting(), bytes), std::nullopt);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= 1;
    EXPECT_EQ(read_link_hello(token, greeting, bytes), std::nullopt) << i;
    bytes[i] ^= 1;
  }
  EXPECT_EQ(read_link_hello(token, greeting, std::span(bytes).first(50)), std::nullopt);
}

}  // namespace
}  // namespace lockstep
