#include "lockstep/runtime/graphs/capture_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep {
namespace {

const c10::Device kFirst(c10::DeviceType::CUDA, 0);
const c10::Device kSecond(c10::DeviceType::CUDA, 1);

/// Makes a guard in a thread of its own, and ends it on destruction.
template <typename Guard>
class Held {
 public:
  template <typename... Args>
  explicit Held(Args... args)
      : thread_([this, args...] {
          const Guard guard(args...);
          is_inside_ = true;
          while (!is_released_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }) {}
  ~Held() {
    is_released_ = true;
    thread_.join();
  }

  /// Waits for a moment, in case that it gets inside late.
  bool is_inside() const {
    for (int i = 0; i < 50 && !is_inside_; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return is_inside_;
  }

 private:
  std::atomic<bool> is_inside_{false};
  std::atomic<bool> is_released_{false};
  std::thread thread_;
};

using HeldCapture = Held<CaptureGuard>;
using HeldDraws = Held<UncapturedGuard>;
using Devices = std::vector<c10::Device>;

TEST(CaptureGate, CapturesGoTogetherAndSoDoDraws) {
  {
    const HeldCapture first(kFirst);
    const HeldCapture second(kFirst);
    EXPECT_TRUE(first.is_inside());
    EXPECT_TRUE(second.is_inside());
  }
  const HeldDraws first(Devices{kFirst, kSecond});
  const HeldDraws second(Devices{kFirst});
  EXPECT_TRUE(first.is_inside());
  EXPECT_TRUE(second.is_inside());
}

TEST(CaptureGate, DrawsWaitForACaptureOfAnyOfTheirDevices) {
  auto capture = std::make_unique<HeldCapture>(kSecond);
  ASSERT_TRUE(capture->is_inside());
  const HeldDraws others(Devices{kFirst});
  const HeldDraws draws(Devices{kFirst, kSecond});
  EXPECT_TRUE(others.is_inside()) << "of another device";
  EXPECT_FALSE(draws.is_inside());
  capture.reset();
  EXPECT_TRUE(draws.is_inside());
}

// Two replicas' captures wait for each other. A thread that had taken one device and waited for the second
// one's capture would keep the first one's from beginning.
TEST(CaptureGate, DrawsThatWaitHoldNoDevice) {
  auto capture = std::make_unique<HeldCapture>(kSecond);
  ASSERT_TRUE(capture->is_inside());
  const HeldDraws draws(Devices{kFirst, kSecond});
  EXPECT_FALSE(draws.is_inside());
  auto other = std::make_unique<HeldCapture>(kFirst);
  EXPECT_TRUE(other->is_inside());
  capture.reset();
  EXPECT_FALSE(draws.is_inside());
  other.reset();
  EXPECT_TRUE(draws.is_inside());
}

TEST(CaptureGate, ACaptureThatWaitsKeepsNewDrawsOut) {
  auto draws = std::make_unique<HeldDraws>(Devices{kFirst});
  ASSERT_TRUE(draws->is_inside());
  auto capture = std::make_unique<HeldCapture>(kFirst);
  EXPECT_FALSE(capture->is_inside());
  const HeldDraws later(Devices{kFirst});
  EXPECT_FALSE(later.is_inside());
  draws.reset();
  EXPECT_TRUE(capture->is_inside());
  EXPECT_FALSE(later.is_inside());
  capture.reset();
  EXPECT_TRUE(later.is_inside());
}

}  // namespace
}  // namespace lockstep
