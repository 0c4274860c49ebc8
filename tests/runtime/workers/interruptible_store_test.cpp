#include "lockstep/runtime/workers/interruptible_store.h"

#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <chrono>
#include <thread>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {
namespace {

using std::chrono::seconds;

c10::intrusive_ptr<InterruptibleStore> interruptible(c10::intrusive_ptr<c10d::Store> store,
                                                     const std::atomic<bool>& flag) {
  return c10::make_intrusive<InterruptibleStore>(
      std::move(store), [&flag] { return flag.load(); }, seconds(60));
}

TEST(InterruptibleStore, EndsWaitsOfAnotherOneOverIt) {
  std::atomic<bool> is_inner_over{false};
  const std::atomic<bool> never{false};
  const auto store =
      interruptible(interruptible(c10::make_intrusive<c10d::HashStore>(), is_inner_over), never);
  const auto begin = std::chrono::steady_clock::now();
  std::thread interrupts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    is_inner_over = true;
  });
  EXPECT_THROW(store->get("absent"), CollectiveAborted);
  interrupts.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));  // the timeout is 60 s
}

TEST(InterruptibleStore, GivesWhatIsThereAlsoAfterwards) {
  const std::atomic<bool> always{true};
  const auto store = interruptible(c10::make_intrusive<c10d::HashStore>(), always);
  store->set("key", {7});
  EXPECT_EQ(store->get("key"), std::vector<uint8_t>{7});
  EXPECT_TRUE(store->check({"key"}));
  EXPECT_THROW(store->check({"absent"}), CollectiveAborted);
}

}  // namespace
}  // namespace lockstep
