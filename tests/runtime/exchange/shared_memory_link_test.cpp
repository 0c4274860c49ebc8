#include "lockstep/runtime/exchange/shared_memory_link.h"

#include <gtest/gtest.h>
// C library headers, for their types.
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/exchange/internal/descriptor_passing.h"

namespace lockstep {
namespace {

using Clock = SharedMemoryLink::Clock;

std::pair<int, int> connected_sockets() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw std::system_error(errno, std::generic_category(), "socketpair");
  return {ends[0], ends[1]};
}

struct Links {
  std::unique_ptr<SharedMemoryLink> maker;
  std::unique_ptr<SharedMemoryLink> other;
};

Links links(size_t capacity) {
  const auto [one, two] = connected_sockets();
  Links both;
  both.maker = SharedMemoryLink::share(one, SharedMemoryLink::allocate(capacity));
  both.other = SharedMemoryLink::receive_from(two, Clock::now() + std::chrono::seconds(10));
  return both;
}

size_t send(ExchangeLink& link, std::span<const uint8_t> bytes) {
  return link.send({{bytes}});
}

std::vector<uint8_t> numbered(size_t count) {
  std::vector<uint8_t> bytes(count);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

/// Waits for a link, and returns whether it was woken within a time.
bool is_woken(ExchangeLink& link, bool to_send, bool to_receive, std::chrono::milliseconds within) {
  const short events = link.begin_wait(to_send, to_receive);
  if (events == 0) return true;
  pollfd polled{link.descriptor(), events, 0};
  poll(&polled, 1, static_cast<int>(within.count()));
  link.end_wait(polled.revents);
  return polled.revents != 0;
}

int error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::system_error& error) {
    return error.code().value();
  }
  return 0;
}

TEST(SharedMemoryLink, CarriesBytesBothWaysAcrossTheEndOfItsBuffer) {
  auto [maker, other] = links(4096);
  const auto bytes = numbered(3000);
  for (int i = 0; i < 10; ++i) {
    for (auto [from, to] : {std::pair(maker.get(), other.get()), std::pair(other.get(), maker.get())}) {
      ASSERT_EQ(send(*from, bytes), bytes.size());
      std::vector<uint8_t> arrived(bytes.size());
      ASSERT_EQ(to->receive(arrived), bytes.size());
      ASSERT_EQ(arrived, bytes);
    }
  }
}

TEST(SharedMemoryLink, TakesNoMoreThanItsBufferHolds) {
  auto [maker, other] = links(4096);
  const auto bytes = numbered(5000);
  EXPECT_EQ(send(*maker, bytes), 4096u);
  EXPECT_EQ(send(*maker, bytes), 0u);
  EXPECT_FALSE(is_woken(*maker, true, false, std::chrono::milliseconds(20)));
  other->consume(100);
  EXPECT_EQ(send(*maker, bytes), 100u);
}

TEST(SharedMemoryLink, WakesAPeerThatWaits) {
  auto [maker, other] = links(4096);
  EXPECT_FALSE(is_woken(*other, false, true, std::chrono::milliseconds(20)));
  std::thread sending([&link = *maker] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    send(link, numbered(10));
  });
  EXPECT_TRUE(is_woken(*other, false, true, std::chrono::seconds(10)));
  sending.join();
  EXPECT_EQ(other->received().size(), 10u);
}

// Otherwise each message would cost two system calls.
TEST(SharedMemoryLink, DoesNotWakeAPeerThatDoesNotWait) {
  auto [maker, other] = links(4096);
  send(*maker, numbered(10));
  pollfd polled{other->descriptor(), POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 0), 0);
}

TEST(SharedMemoryLink, WhatWasSentBeforeTheEndCanStillBeRead) {
  auto [maker, other] = links(4096);
  send(*maker, numbered(10));
  maker.reset();
  EXPECT_EQ(other->received().size(), 10u);
  other->consume(10);
  EXPECT_TRUE(is_woken(*other, false, true, std::chrono::seconds(10)));
  EXPECT_EQ(error_of([&link = *other] { link.received(); }), ECONNRESET);
  EXPECT_EQ(error_of([&link = *other] { send(link, numbered(1)); }), ECONNRESET);
}

TEST(SharedMemoryLink, LeavesNoNameBehind) {
  auto [maker, other] = links(4096);
  EXPECT_EQ(access("/dev/shm/lockstep", F_OK), -1);
  EXPECT_STREQ(maker->transport(), "shared memory");
}

TEST(SharedMemoryLink, RefusesMemoryThatCouldShrinkOrIsNotItsOwn) {
  const auto error_with = [](const std::function<int()>& make_memory) {
    const auto [one, two] = connected_sockets();
    const int memory = make_memory();
    send_descriptor(one, memory);
    close(memory);
    const int error = error_of(
        [socket = two] { SharedMemoryLink::receive_from(socket, Clock::now() + std::chrono::seconds(10)); });
    close(one);
    return error;
  };
  EXPECT_EQ(error_with([] {  // a file, which has no seals
              FILE* file = std::tmpfile();
              const int memory = dup(fileno(file));
              std::fclose(file);
              EXPECT_EQ(ftruncate(memory, 4096 + 2 * 4096), 0);
              return memory;
            }),
            EBADMSG);
  EXPECT_EQ(error_with([] {
              const int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
              EXPECT_EQ(ftruncate(memory, 4096 + 2 * 4096), 0);
              return memory;
            }),
            EBADMSG);
  EXPECT_EQ(error_with([] {
              const int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
              EXPECT_EQ(ftruncate(memory, 4096 + 2 * 4096), 0);
              EXPECT_EQ(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
              return memory;
            }),
            EBADMSG);
}

TEST(SharedMemoryLink, APeerThatSendsNoMemoryIsAnErrorAtTheDeadline) {
  const auto [one, two] = connected_sockets();
  EXPECT_EQ(error_of([socket = two] {
              SharedMemoryLink::receive_from(socket, Clock::now() + std::chrono::milliseconds(20));
            }),
            ETIMEDOUT);
  close(one);
}

}  // namespace
}  // namespace lockstep
