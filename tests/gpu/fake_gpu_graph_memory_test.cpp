// The memory of the fake GPU's graphs, and the order of replays and other work.
#include "lockstep/tests/gpu/fake_gpu_graph_support.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;

TEST_F(FakeGpuGraph, MemoryThatNobodyHasKeptIsOverwritten) {
  const auto value = torch::ones({4}, kGpu0);
  torch::Tensor kept;
  torch::Tensor peeked;
  const auto graph = captured(*pool_, [&] {
    const auto dropped = value * 3;
    const auto whole = dropped * 2;
    kept = whole.narrow(0, 1, 2);
    peeked = torch::from_blob(dropped.data_ptr(), {4}, dropped.options());
  });
  for (int replay = 0; replay < 2; ++replay) {
    EXPECT_TRUE(peeked.isnan().all().item<bool>());
    graph->replay();
    EXPECT_TRUE(torch::equal(kept.cpu(), torch::full({2}, 6.0F)));
  }
  EXPECT_TRUE(peeked.isnan().all().item<bool>());
  value.fill_(2);
  EXPECT_TRUE(torch::equal(kept.cpu(), torch::full({2}, 6.0F))) << "only a replay writes to it";
}

TEST_F(FakeGpuGraph, ItsEndFreesItsMemoryButForWhatIsHeld) {
  constexpr int64_t kMebibyte = 1 << 20;
  const auto fits = [](int64_t bytes) {
    try {
      torch::empty({bytes}, torch::dtype(torch::kByte).device(kGpu0));
      return true;
    } catch (const c10::OutOfMemoryError&) {
      return false;
    }
  };
  const auto value = torch::ones({kMebibyte}, torch::dtype(torch::kByte).device(kGpu0));
  fake_gpu::limit_memory(0, 4 * kMebibyte + kMebibyte / 2);
  torch::Tensor kept;
  auto graph = captured(*pool_, [&] { kept = (value * 2) + 1; });
  EXPECT_TRUE(fits(kMebibyte));
  EXPECT_FALSE(fits(2 * kMebibyte));
  graph->replay();
  graph.reset();
  EXPECT_TRUE(fits(2 * kMebibyte));
  EXPECT_FALSE(fits(3 * kMebibyte));
  EXPECT_TRUE((kept == 3).all().item<bool>());
  kept.reset();
  EXPECT_TRUE(fits(3 * kMebibyte));
  fake_gpu::limit_memory(0, -1);
}

TEST_F(FakeGpuGraph, AReplayMustFindTheMemoryThatItsCaptureSaw) {
  auto value = torch::ones({4}, kGpu0);
  auto pinned = torch::ones({4}).pin_memory();
  const auto reads = captured(*pool_, [&] { value * 2; });
  const auto copies = captured(*pool_, [&] { pinned.to(kGpu0, /*non_blocking=*/true); });
  value = value + 1;
  pinned = pinned + 1;
  EXPECT_THAT([&] { reads->replay(); },
              ThrowsMessage<c10::Error>(HasSubstr("that aten::mul uses was freed")));
  EXPECT_THAT([&] { copies->replay(); },
              ThrowsMessage<c10::Error>(HasSubstr("that aten::copy_ uses was freed")));
}

TEST_F(FakeGpuGraph, ALaterCaptureFindsIndicesThatAreNoGarbage) {
  const auto table = torch::arange(10, 14, kGpu0);
  torch::Tensor index;
  const auto first = captured(*pool_, [&] {
    index = torch::empty({2}, torch::dtype(torch::kLong).device(kGpu0));
    index.narrow(0, 0, 1).fill_(3);
  });
  torch::Tensor found;
  const auto before = captured(*pool_, [&] { found = table.gather(0, index.narrow(0, 0, 1)); });
  first->replay();
  before->replay();
  EXPECT_EQ(found.item<int64_t>(), 13);
  index.narrow(0, 1, 1).fill_(2);
  const auto after = captured(*pool_, [&] { found = table.gather(0, index); });
  after->replay();
  EXPECT_TRUE(torch::equal(found.cpu(), torch::tensor({13, 12}, torch::kLong)));
}

TEST_F(FakeGpuGraph, ReplaysRaceWithWhatNoEventOrders) {
  const auto other = stream_from_pool(kGpu0);
  const auto value = torch::ones({4}, kGpu0);
  const auto graph = captured(*pool_, [&] { value.mul(2); });
  for (const bool waits : {true, false}) {
    fake_gpu::forget();
    {
      const c10::StreamGuard on_other(other);
      value.fill_(3);
    }
    if (waits) wait_for(stream_, other);
    graph->replay();
    if (waits) {
      EXPECT_THAT(fake_gpu::races(), IsEmpty());
    } else {
      EXPECT_THAT(fake_gpu::races(),
                  ElementsAre(AllOf(HasSubstr("aten::mul reads"), HasSubstr("aten::fill_ writes"))));
    }
  }
}

TEST_F(FakeGpuGraph, ReplaysOfOnePoolsGraphsRaceUnlessOrdered) {
  const auto other = stream_from_pool(kGpu0);
  const auto first = captured(*pool_, [] { torch::ones({4}, kGpu0); });
  const auto second = captured(*pool_, [] { torch::ones({4}, kGpu0); });
  for (const bool waits : {true, false}) {
    fake_gpu::forget();
    first->replay();
    if (waits) wait_for(other, stream_);
    const c10::StreamGuard on_other(other);
    second->replay();
    EXPECT_THAT(fake_gpu::races(), SizeIs(waits ? 0 : 1));
  }
}

TEST_F(FakeGpuGraph, AGraphsReplaysAreOrderedWhateverTheirStreams) {
  const auto graph = captured(*pool_, [] { torch::ones({4}, kGpu0); });
  graph->replay();
  const c10::StreamGuard on_other(stream_from_pool(kGpu0));
  graph->replay();
  EXPECT_THAT(fake_gpu::races(), IsEmpty());
}

}  // namespace
}  // namespace lockstep
