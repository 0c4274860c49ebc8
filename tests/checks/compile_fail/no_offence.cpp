// The harness itself: nothing here is refused, so the test of this source must fail.
void call() {}
