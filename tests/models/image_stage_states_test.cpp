// Checkpoints of models of images that are cut into stages. Oracle: those of the whole model on one device.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "lockstep/tests/models/staged_images.h"
#include "lockstep/tests/support/sanitizer.h"
#include "lockstep/tests/support/temporary_folder.h"
#include "lockstep/tests/training/state/saved_tensors.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

using testing::TemporaryFolder;

/// A training whose state can be saved: a whole model on a mesh without stages, else a Pipeline.
template <typename Model>
struct SavedImages {
  template <typename Make>
  SavedImages(const ImageLayout& layout, const Make& make)
      : strategy(cpu_devices(parse_mesh(layout.mesh).size()), image_strategy(layout)),
        model(strategy.scope(make)),
        sgd(strategy.scope([&](ReplicaContext& replica) { return image_sgd(model[replica]->parameters()); })),
        state(strategy) {
    state.add_model(model);
    state.add_optimizer("sgd", sgd);
  }

  MirroredStrategy strategy;
  Mirrored<Model> model;
  Mirrored<torch::optim::SGD> sgd;
  TrainingState state;
};

template <typename Case>
void expect_checkpoints_that_move(const std::vector<ImageLayout>& layouts) {
  using Net = typename Case::Net;
  const TemporaryFolder folder;
  const std::string of_whole = folder.path() + "/whole.pt", again = folder.path() + "/again.pt";
  SavedImages<Net> whole({"data=1"}, [&](ReplicaContext&) { return whole_images_net<Case>(); });
  for (int step = 0; step < 2; ++step) {
    whole.strategy.run(
        [&](ReplicaContext& replica, Net& net, torch::optim::SGD& sgd) {
          sgd.zero_grad();
          const auto all = images_of_step<Case>(step);
          for (int i = 0; i < 4; ++i) {
            const auto micro = part_of_images(all, i, 4);
            (cross_entropy(net->forward(micro.data), micro.target).sum() / Case::kImages).backward();
          }
          replica.apply_gradients(sgd, {.clip_norm = 1});
        },
        whole.model, whole.sgd);
  }
  whole.state.save(of_whole, {});
  ASSERT_GE(saved_tensors(of_whole).size(), 2 * whole.model.primary()->parameters().size());
  for (const auto& layout : layouts) {
    SCOPED_TRACE(layout.str());
    SavedImages<Pipeline> staged(
        layout, [&](ReplicaContext& replica) { return staged_images_net<Case>(replica, layout); });
    for (int step = 0; step < 2; ++step)
      staged.strategy.run(staged_images_step<Case>, staged.model, staged.sgd, step);
    const std::string of_staged = folder.path() + "/staged.pt";
    staged.state.save(of_staged, {});
    if (layout.replicas() == 1) expect_saved_tensors(of_staged, of_whole, kCloseImages);
    SavedImages<Net> other({"data=1"}, [&](ReplicaContext&) { return whole_images_net<Case>(); });
    other.state.load(of_staged);
    other.state.save(again, {});
    expect_saved_tensors(again, of_staged);
    staged.state.load(of_whole);
    staged.state.save(again, {});
    expect_saved_tensors(again, of_whole);
  }
}

TEST(ImageStageStatesTest, CheckpointsOfStagesAreReadByOneDeviceAndBack) {
  expect_checkpoints_that_move<CnnCase>({{"pipeline=2"}, {"data=2,pipeline=3", "1f1b", 4, 1}});
  expect_checkpoints_that_move<MobileNetCase>(
      few_if_sanitized<ImageLayout>({{"pipeline=2"},
                                     {"data=2,pipeline=2", "1f1b", 4, 1},
                                     {"pipeline=4"},
                                     {"data=2,pipeline=2", "1f1b", 4, 3}},
                                    1));
}

}  // namespace
}  // namespace lockstep
