// SPDX-License-Identifier: GPL-2.0
/*
 * One end of a connection over RDMA verbs, for Python (peer.py). It has those functions that are
 * only inline in libibverbs, and the structures of both libraries. Nothing here knows of RDS.
 *
 * Functions return 0 or a number that their comment explains, or an errno as a negative number.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <rdma/rdma_cma.h>

/* A frame is a header of 48 bytes and up to 8192 bytes of payload. */
enum { SENDS = 64, FRAME = 8448, RESOLVE_MS = 10000 };

struct end {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	unsigned char *memory;
	int receives;
	/* Number of reads and atomics that each side may have outstanding. */
	int depth;
	/* The queue pair of another end, for which it asks without one of its own. */
	unsigned int posed_qpn;
	/* Memory of the peer that operations access. */
	uint64_t aim_addr;
	uint32_t aim_key;
	unsigned long long sent, sends_done;
	/* The last event of the connection manager. */
	int event, status;
	int data_len;
	unsigned char data[256];
};

static int failed(void)
{
	return errno ? -errno : -EIO;
}

/* Its packets are dropped from now on, without a word to the peer. */
int end_kill_qp(struct end *e)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	return -ibv_modify_qp(e->qp, &attr, IBV_QP_STATE);
}

static void bury(struct end *e)
{
	if (e->qp)
		ibv_destroy_qp(e->qp);
	if (e->cq)
		ibv_destroy_cq(e->cq);
	if (e->completions)
		ibv_destroy_comp_channel(e->completions);
	if (e->pd)
		ibv_dealloc_pd(e->pd);
	free(e);
}

/*
 * The queue pair stays for a while: soft-RoCE warns (rxe_sched_task) when one is destroyed while a
 * packet for it arrives. Not too many: soft-iWARP maps the queues of some thirty for a process.
 */
void end_free(struct end *e)
{
	static struct end *dying[16];
	static unsigned int next;
	struct end **place = &dying[next++ % 16];

	if (e->qp)
		end_kill_qp(e);
	if (e->id)
		rdma_destroy_id(e->id);
	if (e->mr)
		ibv_dereg_mr(e->mr);
	if (e->channel)
		rdma_destroy_event_channel(e->channel);
	free(e->memory);
	if (*place)
		bury(*place);
	*place = e;
}

/* An end without an identifier; NULL: see errno. */
static struct end *empty(void)
{
	struct end *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	e->aim_addr = 0xffff888000001000ull;
	e->aim_key = 0x1234;
	e->depth = 1;
	e->channel = rdma_create_event_channel();
	if (!e->channel || fcntl(e->channel->fd, F_SETFL, O_NONBLOCK)) {
		end_free(e);
		return NULL;
	}
	return e;
}

/* An end in the network namespace of the calling thread; NULL: see errno. */
struct end *end_new(void)
{
	struct end *e = empty();

	if (e && rdma_create_id(e->channel, &e->id, e, RDMA_PS_TCP)) {
		e->id = NULL;
		end_free(e);
		return NULL;
	}
	return e;
}

int end_cm_fd(struct end *e)
{
	return e->channel->fd;
}

int end_cq_fd(struct end *e)
{
	return e->completions->fd;
}

static int wait_readable(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	return poll(&p, 1, ms);
}

/*
 * Takes the next event. For a request, *request is a new end with a channel of its own. Returns 1,
 * or 0 if there was none in that time.
 */
static int next_event(struct end *e, int ms, struct end **request)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	while (rdma_get_cm_event(e->channel, &event)) {
		if (errno != EAGAIN)
			return failed();
		if (wait_readable(e->channel->fd, ms) <= 0)
			return 0;
	}
	e->event = event->event;
	e->status = event->status;
	e->data_len = event->param.conn.private_data ? event->param.conn.private_data_len : 0;
	if (e->data_len)
		memcpy(e->data, event->param.conn.private_data, e->data_len);
	id = event->id;
	rdma_ack_cm_event(event);
	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST && request) {
		struct end *new = empty();

		if (!new)
			return failed();
		if (rdma_migrate_id(id, new->channel)) {
			end_free(new);
			return failed();
		}
		new->id = id;
		new->event = e->event;
		new->data_len = e->data_len;
		memcpy(new->data, e->data, sizeof(e->data));
		*request = new;
	}
	return 1;
}

int end_event(struct end *e, int ms)
{
	return next_event(e, ms, NULL);
}

/* Like end_event(), on a listener: *request is a new end if the event is a request. */
int end_request(struct end *e, int ms, struct end **request)
{
	*request = NULL;
	return next_event(e, ms, request);
}

static int await(struct end *e, enum rdma_cm_event_type wanted)
{
	int rc = next_event(e, RESOLVE_MS + 1000, NULL);

	if (rc <= 0)
		return rc ? rc : -ETIMEDOUT;
	return (enum rdma_cm_event_type)e->event == wanted ? 0 : e->status ? e->status : -EPROTO;
}

int end_resolve(struct end *e, struct sockaddr *from, struct sockaddr *to, int tos)
{
	unsigned char value = tos;
	int rc;

	if (tos && rdma_set_option(e->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &value, 1))
		return failed();
	if (rdma_resolve_addr(e->id, from, to, RESOLVE_MS))
		return failed();
	rc = await(e, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rc)
		return rc;
	if (rdma_resolve_route(e->id, RESOLVE_MS))
		return failed();
	return await(e, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

int end_listen(struct end *e, struct sockaddr *at)
{
	if (rdma_bind_addr(e->id, at) || rdma_listen(e->id, 16))
		return failed();
	return 0;
}

static struct ibv_sge slot(struct end *e, int index, unsigned int len)
{
	return (struct ibv_sge){
		.addr = (uintptr_t)(e->memory + (size_t)index * FRAME),
		.length = len,
		.lkey = e->mr->lkey,
	};
}

static int post_receive(struct end *e, int index)
{
	struct ibv_sge sge = slot(e, index, FRAME);
	struct ibv_recv_wr wr = { .wr_id = index, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_recv(e->id->qp, &wr, &bad);
}

/* Makes the queue pair, and posts this many receives. */
int end_qp(struct end *e, int receives)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = SENDS, .max_recv_wr = receives ? receives : 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};
	size_t bytes = (size_t)(SENDS + receives) * FRAME;

	e->receives = receives;
	e->memory = calloc(1, bytes);
	e->pd = ibv_alloc_pd(e->id->verbs);
	e->completions = ibv_create_comp_channel(e->id->verbs);
	if (!e->memory || !e->pd || !e->completions)
		return failed();
	if (fcntl(e->completions->fd, F_SETFL, O_NONBLOCK))
		return failed();
	e->mr = ibv_reg_mr(e->pd, e->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	e->cq = ibv_create_cq(e->id->verbs, SENDS + receives + 1, NULL, e->completions, 0);
	if (!e->mr || !e->cq || ibv_req_notify_cq(e->cq, 0))
		return failed();
	attr.send_cq = attr.recv_cq = e->cq;
	if (rdma_create_qp(e->id, e->pd, &attr))
		return failed();
	e->qp = e->id->qp;
	for (int i = 0; i < receives; i++) {
		int rc = post_receive(e, SENDS + i);

		if (rc)
			return rc;
	}
	return 0;
}

/* Instead of end_qp(): takes the queue pair of another end, which has disconnected, and so its number. */
int end_adopt(struct end *e, struct end *other)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;
	int mask;

	if (ibv_modify_qp(other->qp, &attr, IBV_QP_STATE))
		return failed();
	while (ibv_poll_cq(other->cq, 1, &wc) > 0)
		;
	e->pd = other->pd;
	e->completions = other->completions;
	e->cq = other->cq;
	e->mr = other->mr;
	e->memory = other->memory;
	e->receives = other->receives;
	e->id->qp = e->qp = other->qp;
	other->pd = NULL;
	other->completions = NULL;
	other->cq = NULL;
	other->mr = NULL;
	other->memory = NULL;
	other->id->qp = other->qp = NULL;
	attr.qp_state = IBV_QPS_INIT;
	if (rdma_init_qp_attr(e->id, &attr, &mask) || ibv_modify_qp(e->qp, &attr, mask))
		return failed();
	for (int i = 0; i < e->receives; i++) {
		int rc = post_receive(e, SENDS + i);

		if (rc)
			return rc;
	}
	return 0;
}

int end_depth(struct end *e, int depth)
{
	e->depth = depth;
	return 0;
}

/* An end without a queue pair asks with the number of another one's. */
int end_pose(struct end *e, struct end *other)
{
	e->posed_qpn = other->qp->qp_num;
	return 0;
}

static struct rdma_conn_param params(struct end *e, const void *data, int len)
{
	return (struct rdma_conn_param){
		.private_data = data,
		.private_data_len = len,
		.responder_resources = e->depth,
		.initiator_depth = e->depth,
		.retry_count = 7,
		.rnr_retry_count = 7,
		.flow_control = 1,
		.qp_num = e->posed_qpn,
	};
}

int end_connect(struct end *e, const void *data, int len)
{
	struct rdma_conn_param param = params(e, data, len);

	return rdma_connect(e->id, &param) ? failed() : 0;
}

int end_accept(struct end *e, const void *data, int len)
{
	struct rdma_conn_param param = params(e, data, len);

	return rdma_accept(e->id, &param) ? failed() : 0;
}

int end_reject(struct end *e, const void *data, int len)
{
	return rdma_reject(e->id, data, len) ? failed() : 0;
}

int end_disconnect(struct end *e)
{
	return rdma_disconnect(e->id) ? failed() : 0;
}

/* Sets the memory of the peer that operations access. By default it is memory without a region. */
int end_aim(struct end *e, unsigned long long addr, unsigned int key)
{
	e->aim_addr = addr;
	e->aim_key = key;
	return 0;
}

/* Copies the result of the last operation. */
int end_brought(struct end *e, void *bytes, unsigned int len)
{
	memcpy(bytes, e->memory + (size_t)((e->sent - 1) % SENDS) * FRAME, len);
	return 0;
}

/* Posts a send, or an operation on memory of the peer. -EAGAIN: too many are not done yet. */
int end_post(struct end *e, int opcode, const void *bytes, unsigned int len)
{
	const uint64_t foreign_addr = e->aim_addr;
	const uint32_t foreign_key = e->aim_key;

	int index = e->sent % SENDS, rc;
	struct ibv_sge sge = slot(e, index, len);
	struct ibv_send_wr wr = {
		.wr_id = index,
		.sg_list = &sge,
		.num_sge = len ? 1 : 0,
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	if (opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = foreign_key;
	if (opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = foreign_addr;
		wr.wr.atomic.rkey = foreign_key;
	} else if (opcode != IBV_WR_SEND) {
		wr.wr.rdma.remote_addr = foreign_addr;
		wr.wr.rdma.rkey = foreign_key;
	}
	if (len > FRAME)
		return -EMSGSIZE;
	if (e->sent - e->sends_done >= SENDS)
		return -EAGAIN;
	memcpy(e->memory + (size_t)index * FRAME, bytes, len);
	rc = ibv_post_send(e->id->qp, &wr, &bad);
	if (!rc)
		e->sent++;
	return -rc;
}

/*
 * Takes one completion. Returns 0 if there is none, 1 if a frame was received, 2 if one was sent,
 * and 3 if one of them failed. *value is the length or the status. A received frame is in buf, and
 * its receive is posted again.
 */
int end_poll(struct end *e, void *buf, int *value)
{
	struct ibv_wc wc;
	struct ibv_cq *cq;
	void *context;
	int n = ibv_poll_cq(e->cq, 1, &wc);

	if (!n) {
		/* Asked for first, then looked again: nothing is missed. */
		while (!ibv_get_cq_event(e->completions, &cq, &context))
			ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(e->cq, 0))
			return failed();
		n = ibv_poll_cq(e->cq, 1, &wc);
	}
	if (n <= 0)
		return n ? -EIO : 0;
	if (wc.wr_id < SENDS)
		e->sends_done++;
	if (wc.status != IBV_WC_SUCCESS) {
		*value = wc.status;
		return 3;
	}
	if (wc.wr_id < SENDS)
		return 2;
	*value = wc.byte_len;
	memcpy(buf, e->memory + wc.wr_id * FRAME, wc.byte_len);
	/* Fails when the connection has ended meanwhile. */
	post_receive(e, wc.wr_id);
	return 1;
}

int end_last_event(struct end *e, int *status, void *data)
{
	*status = e->status;
	memcpy(data, e->data, sizeof(e->data));
	return e->event;
}

int end_data_len(struct end *e)
{
	return e->data_len;
}

/* Returns the number of outstanding sends. */
int end_busy(struct end *e)
{
	return e->sent - e->sends_done;
}
